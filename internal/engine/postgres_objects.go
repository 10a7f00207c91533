package engine

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// The relations that the newest migration leaves, in the catalogue's words. A test of internal/deploy compares
// the file with a fresh installation, and writes it anew with -update.
//
//go:embed postgres_objects.json
var postgresObjects []byte

// Objects implements [Engine].
func (p *postgres) Objects() []Relation {
	var relations []Relation
	if err := json.Unmarshal(postgresObjects, &relations); err != nil {
		// The file is part of this build.
		panic(fmt.Sprintf("read postgres_objects.json: %v", err))
	}
	return relations
}
