// Package bpf is the kernel part: the C that enforces and the Go that loads,
// pins, installs and reads it. It is the only importer of cilium/ebpf and
// imports only package policy. The daemon may import it.
package bpf
