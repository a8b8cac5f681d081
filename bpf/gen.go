package bpf

//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target amd64 -no-global-types -output-stem kernel kernel c/dunnage.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Wshadow -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu

//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target amd64 -no-global-types -output-stem trial trial c/trial.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Wshadow -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu
