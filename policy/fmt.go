package policy

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// Format prints a policy file in its canonical layout: two columns of
// indentation, one `---` between documents, comments kept. A file with an error
// is not touched: the diagnostics say why.
func Format(name string, data []byte) ([]byte, Diagnostics) {
	if _, diags := ParseFile(name, data); diags.Err() != nil {
		return nil, diags
	}
	if _, diags := ParseTests(name, data); diags.Err() != nil {
		return nil, diags
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			err = enc.Close()
			if err == nil {
				return out.Bytes(), nil
			}
		}
		if err == nil {
			err = enc.Encode(&doc)
		}
		if err != nil {
			return nil, Diagnostics{{Pos: Position{name, 1, 1}, Message: "formatting: " + err.Error(), Hint: "the file is left as it is"}}
		}
	}
}
