package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bomfather's policy files, translated. Its rules protect what they name: a
// named directory is closed to every program but those that some rule grants it,
// at whatever level above or below; what no rule names is open. That is `only`,
// with `inherit: true` because rights there pass on over fork and exec. What is
// not enforced here is refused by name, never dropped.
type bomfather struct {
	*parser
	*ruleSet            // the one that the entry being read belongs to
	sets     []*ruleSet // in order of appearance
}

// ruleSet is what the entries for one `container =` pattern say; the set without
// one is for the containers that no pattern matches. Sets are never merged.
type ruleSet struct {
	container string
	dirs      []*granted // in order of appearance
	run       []*granted
	trusted   []Pattern
	readOnly  []Pattern
	pos       Position
}

// use turns to the rule set of a container pattern.
func (b *bomfather) use(container string, pos Position) {
	for _, s := range b.sets {
		if s.container == container {
			b.ruleSet = s
			return
		}
	}
	b.ruleSet = &ruleSet{container: container, pos: pos}
	b.sets = append(b.sets, b.ruleSet)
}

// granted is a protected path and who may do what.
type granted struct {
	path  Pattern
	read  []Pattern
	write []Pattern
	pos   Position
}

const notYet = "remove it here and enforce it by other means"

func (p *parser) bomfather(n *yaml.Node, name string) *Policy {
	pol := &Policy{Name: name, Pos: p.at(n), MemfdExec: true}
	for k := range pol.Default {
		pol.Default[k] = true
	}
	if !ValidName(name) {
		p.fail(n, "rename the file: a-z 0-9 . _ -", "the policy's name comes from the file and is %q", name)
	}
	b := &bomfather{parser: p}
	b.use("", p.at(n))
	before := len(p.diags)
	p.fields(n, "the file", []string{"policies", "attributes", "flags", "shutdown_config"}, func(key string, v *yaml.Node) {
		switch key {
		case "policies":
			p.items(v, "policies", b.policy)
		case "attributes":
			p.items(v, "attributes", b.attribute)
		case "flags":
			b.flags(v, pol)
		case "shutdown_config":
			p.fail(v, "stop the daemon with `dunnage stop`", "shutdown_config is not supported: only root stops the daemon")
		}
	})
	if Diagnostics(p.diags[before:]).Err() != nil {
		return nil
	}
	flagged := *pol // what holds for every set
	for _, b.ruleSet = range b.sets {
		set := flagged
		set.Pos = b.pos
		set.Rules = append(b.rules(), flagged.Rules...)
		if run := b.runRules(); len(run) > 0 && b.both(set.Rules, run) {
			and := flagged
			and.Rules = run
			set.And = &and
		} else {
			set.Rules = append(set.Rules, run...)
		}
		if b.container == "" {
			set.Variants = pol.Variants
			*pol = set
		} else {
			pol.Variants = append(pol.Variants, Variant{b.container, &set})
		}
	}
	return pol
}

// place reads the `key = value | key = value` grammar.
func (b *bomfather) place(n *yaml.Node, what string, known ...string) map[string]string {
	out := map[string]string{}
	for _, part := range strings.Split(b.text(n, what), "|") {
		key, value, ok := strings.Cut(part, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		switch {
		case !ok:
			b.fail(n, "write `filepath = /path`", "%s: %q has no `=`", what, strings.TrimSpace(part))
		case key == "container" && out[key] != "":
			b.fail(n, "keep one", "%s: key %q is given twice", what, key)
		case key == "container":
			out[key] = strings.TrimSpace(value)
			if !validContainer(out[key]) {
				b.fail(n, "write namespace:pod:container, each a name or a pattern such as *", "%s: container is %q", what, out[key])
			}
		case !slices.Contains(known, key):
			b.fail(n, "known: "+choices(known), "%s: unknown key %q", what, key)
		case out[key] != "":
			b.fail(n, "keep one", "%s: key %q is given twice", what, key)
		default:
			out[key] = strings.TrimSpace(value)
		}
	}
	b.use(out["container"], b.at(n))
	return out
}

// path reads one path; Bomfather's have no globs.
func (b *bomfather) path(n *yaml.Node, text string) (Pattern, bool) {
	if len(text) > 1 {
		text = strings.TrimSuffix(text, "/")
	}
	ps, err := ParsePattern(escapeGlobs(text), b.at(n))
	if err != nil {
		b.fail(n, "", "%v", err)
		return Pattern{}, false
	}
	return ps[0], true
}

func (b *bomfather) policy(n *yaml.Node) {
	known := []string{"executable", "can_access_dirs", "can_run", "is_allowed_to_access_ip", "fsverity_digest", "python",
		"python_argv_exact", "python_cwd"}
	var who []Pattern
	var dirs, run, argv *yaml.Node
	ok := b.fields(n, "the policy", known, func(key string, v *yaml.Node) {
		switch key {
		case "executable":
			if p, ok := b.path(v, b.place(v, key, "filepath")["filepath"]); ok {
				who = append(who, p)
				b.trusted = append(b.trusted, p)
			}
		case "python":
			place := b.place(v, key, "filepath", "libs")
			if p, ok := b.path(v, place["filepath"]); ok {
				who = append(who, p)
				b.trusted = append(b.trusted, p)
			}
			for _, lib := range strings.Split(place["libs"], ",") {
				if p, ok := b.path(v, strings.TrimSpace(lib)); ok {
					b.readOnly = append(b.readOnly, p)
				}
			}
		case "can_access_dirs":
			dirs = v
		case "can_run":
			run = v
		case "python_argv_exact", "python_cwd":
			argv = v
		default:
			b.fail(v, notYet, "%s is not supported: Dunnage judges files, not networks or digests", key)
		}
	})
	if argv != nil {
		b.fail(argv, "start the script by its `#!` line and name it with `executable:`: a script is a program of its own",
			"python_argv_exact and python_cwd are not supported: any program can give python these arguments in this directory")
		return
	}
	if ok && len(who) != 1 {
		b.fail(n, "write one `executable:` or one `python:`", "the policy names %d programs", len(who))
		return
	}
	if dirs != nil {
		b.items(dirs, "can_access_dirs", func(item *yaml.Node) { b.grantDir(item, who) })
	}
	if run != nil {
		b.items(run, "can_run", func(item *yaml.Node) {
			if p, ok := b.path(item, b.text(item, "can_run")); ok {
				g := find(&b.run, p, b.at(item))
				g.read = append(g.read, who...)
			}
		})
	}
}

func (b *bomfather) grantDir(n *yaml.Node, who []Pattern) {
	text := b.text(n, "can_access_dirs")
	dir, mode, ok := strings.Cut(text, ":")
	mode = strings.TrimSpace(mode)
	if !ok || mode != "read" && mode != "write" {
		b.fail(n, "write \"/dir:read\" or \"/dir:write\"", "can_access_dirs: %q", text)
		return
	}
	p, ok := b.path(n, strings.TrimSpace(dir))
	if !ok {
		return
	}
	g := find(&b.dirs, p, b.at(n))
	g.read = append(g.read, who...)
	if mode == "write" {
		g.write = append(g.write, who...)
	}
}

func find(list *[]*granted, p Pattern, pos Position) *granted {
	for _, g := range *list {
		if g.path.key() == p.key() {
			return g
		}
	}
	g := &granted{path: p, pos: pos}
	*list = append(*list, g)
	return g
}

func (b *bomfather) attribute(n *yaml.Node) {
	known := []string{"path", "allowed_gpu", "allowed_ptrace", "allowed_ld_env", "can_only_access_ips",
		"output_openats_for_executable", "global_read_only"}
	var place map[string]string
	var at *yaml.Node
	readOnly := false
	b.fields(n, "the attribute", known, func(key string, v *yaml.Node) {
		switch key {
		case "path":
			at, place = v, b.place(v, key, "type", "filepath")
		case "global_read_only":
			readOnly = b.truth(v, key)
		case "output_openats_for_executable":
			if b.truth(v, key) {
				b.warn(b.at(v), "denials are reported, opens are not", "%s has no effect", key)
			}
		case "can_only_access_ips":
			b.fail(v, notYet, "%s is not supported: Dunnage does not judge networks", key)
		case "allowed_ptrace":
			if b.truth(v, key) {
				b.fail(v, "remove it; a task drives those that have exactly its rights",
					"%s is not supported: who drives another task has its rights, and no policy lifts that guard", key)
			}
		default:
			if b.truth(v, key) {
				b.fail(v, notYet, "%s is not supported", key)
			}
		}
	})
	if readOnly && place["type"] == "filepath" {
		if p, ok := b.path(at, place["filepath"]); ok {
			b.readOnly = append(b.readOnly, p)
		}
	} else if readOnly {
		b.fail(n, "write `type = filepath`", "global_read_only is for `type = filepath`")
	}
}

func (b *bomfather) flags(n *yaml.Node, pol *Policy) {
	known := []string{"security_level", "secure_maps", "block_ptrace", "block_in_memory_exec", "restrict_gpu",
		"restrict_ld_env", "enable_openat", "disable_bpf_ops"}
	b.fields(n, "flags", known, func(key string, v *yaml.Node) {
		switch key {
		case "security_level":
			switch b.word(v, key, "monitor", "block", "sandbox", "kill") {
			case 0:
				pol.Audit = true
			case 2, 3:
				b.warn(b.at(v), "the access itself is denied", "security_level %s: the violator is not cut off or killed", v.Value)
			}
		case "block_in_memory_exec":
			if b.truth(v, key) {
				pol.MemfdExec = false
				r := Rule{Effect: Deny, Access: 1 << Exec, Pos: b.at(v)}
				for _, dir := range []string{"/dev/shm", "/run/shm"} {
					if p, ok := b.path(v, dir); ok {
						r.Paths = append(r.Paths, p)
					}
				}
				pol.Rules = append(pol.Rules, r)
				b.warn(b.at(v), "memfd, /dev/shm and /run/shm are covered", "%s: anonymous executable memory is not judged", key)
			}
		case "secure_maps", "block_ptrace":
			if !b.truth(v, key) {
				b.warn(b.at(v), "", "%s: always on", key)
			}
		case "disable_bpf_ops":
			if b.truth(v, key) {
				b.warn(b.at(v), "", "%s: confined tasks never get bpf(2)", key)
			}
		case "enable_openat":
			if b.truth(v, key) {
				b.warn(b.at(v), "denials are reported, opens are not", "%s has no effect", key)
			}
		default:
			if b.truth(v, key) {
				b.fail(v, notYet, "%s is not supported", key)
			}
		}
	})
}

// rules are the native rules with the same meaning, but for can_run.
func (b *bomfather) rules() []Rule {
	var out []Rule
	everybody, _ := ParsePattern("/**", b.pos)
	for _, g := range b.dirs {
		paths := []Pattern{g.path}
		switch open := b.openTo(g.path); {
		case open == nil:
			out = append(out, b.only(paths, 1<<Read|1<<Exec, g.read, g.pos))
		case open == g && slices.ContainsFunc(b.dirs, func(o *granted) bool { return o.path.above(g.path) && b.openTo(o.path) == nil }):
			// The rule above must not reach down to here.
			out = append(out, b.only(paths, 1<<Read|1<<Exec, everybody, g.pos))
			b.warn(g.pos, "start the container from elsewhere",
				"%s is open for reading within a closed directory: every program reads it, but a container's first program can't be there", g.path.Text)
		}
		out = append(out, b.only(paths, Write, g.write, g.pos))
	}
	const content = 1<<Modify | 1<<Create | 1<<Delete
	for _, p := range b.readOnly {
		out = append(out, Rule{Effect: Only, Paths: []Pattern{p}, Access: content, Listed: true, Pos: p.Pos})
	}
	for _, p := range b.trusted {
		out = append(out, Rule{Effect: Deny, Paths: []Pattern{p}, Exact: true, Access: content, Pos: p.Pos})
	}
	return out
}

// openTo is the topmost protected directory, at or above a path, that is
// read-only for all as well: all may read it then, with all that is below, also
// what narrower rules protect. nil if there is none.
func (b *bomfather) openTo(path Pattern) (top *granted) {
	for _, g := range b.dirs {
		readOnly := slices.ContainsFunc(b.readOnly, func(p Pattern) bool { return p.key() == g.path.key() })
		if readOnly && (g.path.key() == path.key() || g.path.above(path)) && (top == nil || g.path.above(top.path)) {
			top = g
		}
	}
	return top
}

// above reports whether a path without globs is a directory above another one.
func (p Pattern) above(q Pattern) bool {
	return len(p.Components) < len(q.Components) && p.covers(q, true)
}

func (b *bomfather) only(paths []Pattern, access AccessSet, who []Pattern, pos Position) Rule {
	return Rule{Effect: Only, Paths: paths, Access: access, Listed: true, Executables: who, Inherit: true, Pos: pos}
}

// runRules are the rules for can_run.
func (b *bomfather) runRules() []Rule {
	var out []Rule
	for _, g := range b.run {
		r := b.only([]Pattern{g.path}, 1<<Exec, g.read, g.pos)
		r.Exact = true
		out = append(out, r)
	}
	return out
}

// both reports whether a program of can_run is below a protected directory.
// There Bomfather asks two questions, for the file and for its execution, and
// `only` rules of one layer would take the answer of either.
func (b *bomfather) both(dirs, run []Rule) bool {
	for i := range run {
		path := run[i].Paths[0]
		if slices.ContainsFunc(dirs, func(r Rule) bool {
			return r.Effect == Only && r.Access.Has(Exec) && r.Paths[0].covers(path, true)
		}) {
			return true
		}
	}
	return false
}
