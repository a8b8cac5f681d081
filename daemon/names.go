package main

// storageName is a container's name by containers/storage, or "".
func (s storage) name(id string) string {
	c, err := s.container(id)
	if err != nil || c == nil || len(c.Names) == 0 {
		return ""
	}
	return c.Names[0]
}
