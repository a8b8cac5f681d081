package policy

import _ "embed"

//go:embed schema.json
var schema string

// Schema is the JSON Schema (2020-12) of a document of kind Policy or PolicyTest,
// for editors that complete it. The parser refuses more: what is wrong within a path, and
// defaults that leave an access out or name one twice.
func Schema() string { return schema }
