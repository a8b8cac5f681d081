package policy

import "go.yaml.in/yaml/v3"

// Reader reads other strict YAML files than policies: nothing is accepted that
// is not understood, and every complaint has its place.
type Reader struct{ p *parser }

// ReadYAML calls f for each document of a file that is not empty.
func ReadYAML(name string, data []byte, f func(*Reader, *yaml.Node)) Diagnostics {
	r := &Reader{&parser{file: name}}
	r.p.documents(data, func(n *yaml.Node) { f(r, n) })
	return r.p.diags
}

// At is the place of a node.
func (r *Reader) At(n *yaml.Node) Position { return r.p.at(n) }

// Fail adds an error.
func (r *Reader) Fail(n *yaml.Node, hint, format string, args ...any) {
	r.p.fail(n, hint, format, args...)
}

// Fields walks a mapping: each known key once, no other, no alias or merge.
func (r *Reader) Fields(n *yaml.Node, what string, known []string, f func(key string, value *yaml.Node)) bool {
	return r.p.fields(n, what, known, f)
}

// Items calls f for each item of a list.
func (r *Reader) Items(n *yaml.Node, what string, f func(*yaml.Node)) { r.p.items(n, what, f) }

// Text reads a string.
func (r *Reader) Text(n *yaml.Node, what string) string { return r.p.text(n, what) }

// Truth reads a boolean.
func (r *Reader) Truth(n *yaml.Node, what string) bool { return r.p.truth(n, what) }

// Word reads one of a few words and returns its index, or -1.
func (r *Reader) Word(n *yaml.Node, what string, words ...string) int {
	return r.p.word(n, what, words...)
}
