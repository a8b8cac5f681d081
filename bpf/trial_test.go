package bpf
