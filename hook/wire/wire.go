// Package wire is the protocol between the hook and the daemon: one JSON
// message each way over a unix SOCK_SEQPACKET socket. It holds types, limits
// and the framing with file descriptors, and imports only the standard library
// and golang.org/x/sys/unix. The hook and the daemon may import it.
package wire
