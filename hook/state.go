package main

import (
	"encoding/json"
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// parseState reads the fields that are reliable in every runtime: id, pid and
// annotations. Status and bundle are not looked at: crun and runc differ in
// both, and some releases have them wrong.
func parseState(data []byte) (*specs.State, error) {
	var s struct {
		ID          string            `json:"id"`
		Pid         int               `json:"pid"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if s.ID == "" {
		return nil, errors.New("no container id")
	}
	return &specs.State{ID: s.ID, Pid: s.Pid, Annotations: s.Annotations}, nil
}
