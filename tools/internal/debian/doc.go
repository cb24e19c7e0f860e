// Package debian keeps folders with unpacked Debian packages: the compilers,
// emulators and kernels that this machine's own distribution does not have.
//
// Nothing is installed: apt gets a view of one suite with lists, settings and
// package status of its own, downloads packages with all that they depend on,
// and these are unpacked. No maintainer script runs. The mirror is the one
// that the machine's apt uses, and signatures are checked with the machine's
// keyring.
//
// A folder, once complete, is never changed; delete it to get newer packages.
// Several processes may ask for the same folder at once: a file lock makes all
// but one wait.
//
// Documents: apt.conf(5), apt-get(8), sources.list(5), dpkg-deb(1).
package debian
