// Package deliver brings messages to receivers over HTTP: OTLP's profiles and Pyroscope's pprof.
//
// A message is put into a [Queue], which is a folder of bounded size, and sent from there in order by a goroutine of its
// own: who puts one waits for the disk and never for a network. It is removed when the receiver has taken it, or has refused
// it for good; otherwise it is tried again, later and later, and by the next program that opens the folder. What was put
// before a crash of the program is sent after it; of the machine, as far as the file system has kept it. A receiver that has taken a message and cannot say so gets it once more: the same
// bytes, with the same ids of profiles.
//
// A [Receiver] knows how to post a message and what an answer means. It knows nothing of what a message holds.
//
// Documents followed: OpenTelemetry Protocol 1.9 ("OTLP/HTTP"); OpenTelemetry Protocol Exporter (OTEL_EXPORTER_OTLP_…);
// RFC 9110 (Retry-After); Pyroscope's "Server HTTP API" (/ingest).
package deliver
