package main

import (
	"fmt"

	"github.com/dunnage-project/dunnage/bpf"
)

// dunnage measures our own kernel part: those it must leave alone, and those
// that it confines, with the cache, without it, and when it never holds what is
// asked for.
func (b *bench) dunnage() error {
	if err := b.cached(); err != nil {
		return err
	}
	// Far fewer entries than directories, which are gone through in turn.
	err := with(bpf.Options{CacheEntries: 64}, func(e *bpf.Engine) error {
		return b.confined(e, "missed, directory", 5, 10, 1, missPath, "enforce", spread(10, allow("read", dir(4))))
	})
	if err != nil {
		return err
	}
	return with(bpf.Options{NoCache: true}, func(e *bpf.Engine) error { return b.policies(e, "walked") })
}

// cached measures with the cache.
func (b *bench) cached() error {
	return with(bpf.Options{}, func(e *bpf.Engine) error {
		if off := e.CacheOff(); off != "" {
			return fmt.Errorf("there is no cache: %s", off)
		}
		if err := b.bystanders(); err != nil {
			return err
		}
		return b.policies(e, "cached")
	})
}

// bystanders are not confined: a program on the host, and one in a container
// without a policy.
func (b *bench) bystanders() error {
	if err := b.add("host", 5, 0, 0, true, file(5), orders{}, nil); err != nil {
		return err
	}
	for _, depth := range b.depths {
		if err := b.add("container without policy", depth, 0, 0, false, file(depth), orders{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// policies measures what confined programs pay, along each axis. way is how
// their paths are looked up.
func (b *bench) policies(e *bpf.Engine, way string) error {
	for _, depth := range b.depths {
		// The whole directory has the same rights: its state is final.
		if err := b.confined(e, way+", directory", depth, 10, 1, file(depth), "enforce", spread(10, allow("read", dir(depth)))); err != nil {
			return err
		}
		// The file has rights of its own beside others: its name is looked at.
		if err := b.confined(e, way+", name", depth, 10, 1, file(depth), "enforce", beside(depth, 10)); err != nil {
			return err
		}
	}
	for _, rules := range b.rules {
		if rules == 10 {
			continue // among the depths
		}
		if err := b.confined(e, way+", directory", 5, rules, 1, file(5), "enforce", spread(rules, allow("read", dir(5)))); err != nil {
			return err
		}
		if err := b.confined(e, way+", name", 5, rules, 1, file(5), "enforce", beside(5, rules)); err != nil {
			return err
		}
	}
	for _, containers := range b.containers {
		if containers == 1 {
			continue
		}
		if err := b.confined(e, way+", directory", 5, 10, containers, file(5), "enforce", spread(10, allow("read", dir(5)))); err != nil {
			return err
		}
	}
	if err := b.confined(e, way+", denied, event", 5, 10, 1, file(5), "enforce", spread(10)); err != nil {
		return err
	}
	return b.confined(e, way+", audited, event", 5, 10, 1, file(5), "audit", spread(10))
}

// beside is the file's own rule and n others that name entries of its directory.
func beside(depth, n int) []string {
	rules := []string{allow("read", file(depth))}
	for _, s := range siblings(depth, n) {
		rules = append(rules, allow("read", s))
	}
	return rules
}

// spread is the rules given and n others that name other directories.
func spread(n int, rules ...string) []string {
	for _, s := range siblings(1, n) {
		rules = append(rules, allow("read", s))
	}
	return rules
}
