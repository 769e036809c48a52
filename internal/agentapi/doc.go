// Package agentapi is the contract between the host and the agent inside a
// sandbox, and the host's client for it. It imports nothing else of this
// repository: the agent is built from it and package agent alone.
//
// # Transport
//
// HTTP/2 without TLS (h2c, prior knowledge) on connections that the dial function of the
// [Client] makes. Both sides announce receive windows small enough that at most
// [MaxInFlight] bytes are unread on a connection in either direction, because some
// transports lose bytes beyond a megabyte in flight. A connection carries at most
// MaxInFlight/[StreamWindow] streams at a time, so that streams nobody reads never block
// another; the client opens more connections as it needs them. The streams of later
// connections have smaller windows, and all that they may buffer is counted ([Memory]).
// When a connection breaks, the client dials again; running processes do not notice, and
// their output is read on from the byte where it stopped ([Client.Attach]).
//
// A connection that is [Direct] loses nothing, and may also speak HTTP/1.1, which needs fewer system calls
// of the agent for each byte. Content of at least [LargeTransfer], archives, and content of unknown size have
// such a connection of their own.
//
// # Routes
//
//	GET    /health                      Health
//	POST   /configure                   Config: environment, hostname, main process; idempotent
//	POST   /exec                        duplex frames, first a FrameStart with a Command
//	GET    /processes                   []ProcessInfo
//	POST   /processes/{id}/attach?offset=N   duplex frames from output byte N on; -1: the oldest available
//	POST   /processes/{id}/signal       SignalRequest, to the whole process group
//	POST   /processes/{id}/resize       Size of the process's terminal
//	POST   /tunnel?port=N               up: raw bytes to 127.0.0.1:N or [::1]:N; down: FrameStdout, then FrameEOF;
//	                                    by HTTP/1.1: 101, then FrameStdout and FrameEOF in both directions
//	GET    /files?path=P&offset=N&length=N   content, its FileInfo in the header [InfoHeader]; with
//	                                    most=N none of more than N bytes, but the header [LargeHeader]
//	PUT    /files?path=P&...            WriteOptions as query; body is the content; atomic; FileInfo
//	DELETE /files?path=P&recursive=B
//	GET    /files/stat?path=P           FileInfo
//	GET    /files/list?path=P&after=NAME&limit=N   FileList, sorted by name
//	POST   /files/mkdir                 MkdirRequest
//	POST   /files/move                  MoveRequest
//
// Calls on files that take parameters in the query also take beneath=DIR, as in
// [WriteOptions]. Answers other than 2xx carry an [Error] as JSON.
//
// # Frames
//
// The bodies of exec and attach are sequences of frames: one byte of [FrameType], four
// bytes of payload length in network order, and the payload of at most [MaxFrame] bytes
// ([MaxStart] for the start). Payloads of stdin, stdout and stderr are raw bytes, preceded
// by an offset in a FrameStdinAt; payloads of the other types are JSON. Output bytes are
// counted over stdout and stderr together, in the order in which they were read; that count
// is the offset of attach. The agent stores at least the last [ReplayWindow] output bytes of
// a process. While clients are attached, the process waits for the slowest reader, and
// nothing is lost. Without clients, a detached process runs on and its oldest output is
// discarded, unless it was started with Backpressure; a process that is not detached blocks until a
// client attaches again or it is killed.
//
// # Trust
//
// The agent runs among hostile code and may be replaced by it. The client bounds the size of
// everything that it decodes, and the duration of every call by its context. It uses nothing
// from the agent as a path, pid or size on the host.
package agentapi
