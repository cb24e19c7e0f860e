// Functions of this package without a body are those of the runtime: see raw.go.
