package policy

import (
	"encoding/binary"
	"slices"
)

// row is the Out of a state of the path automaton: the rights that follow from
// the speakers that match there.
func (c *compiler) row(matched []match) uint32 {
	var row Row
	for k := range row {
		row[k] = c.right(matched, Kind(k))
	}
	key := string(rowKey(&row))
	if i, ok := c.rowOf[key]; ok {
		return i
	}
	i := uint32(len(c.rows))
	c.rows = append(c.rows, row)
	c.rowOf[key] = i
	return i
}

// right combines the layers' rights for one kind, in the normal form of Right.
func (c *compiler) right(matched []match, k Kind) Right {
	var enforce, audit half
	for layer, p := range c.layers {
		deny, grant := c.layerRight(matched, k, layer)
		if p.Audit {
			audit.add(deny, grant, c.words)
		} else {
			enforce.add(deny, grant, c.words)
		}
	}
	deny, grants := enforce.normal(nil, c.words)
	if isNobody(deny) {
		return Right{Deny: deny}
	}
	r := Right{Deny: deny, Grant: grants}
	r.AuditDeny, r.AuditGrant = audit.normal(deny, c.words)
	// Who passes an enforcing grant passes every wider one of the audit layers.
	r.AuditGrant = slices.DeleteFunc(r.AuditGrant, func(g Mask) bool {
		return slices.ContainsFunc(grants, func(enforced Mask) bool { return subsetMask(enforced, g) })
	})
	if len(r.AuditGrant) == 0 {
		r.AuditGrant = nil
	}
	return r
}

// layerRight is the groups that one layer denies, and those of which a subject
// must be in one.
func (c *compiler) layerRight(matched []match, k Kind, layer int) (deny, grant Mask) {
	deny, grant = make(Mask, c.words), make(Mask, c.words)
	only := make(Mask, c.words)
	restricted := false
	for _, m := range matched {
		r := &c.speakers[m.owner]
		if r.layer != layer || !m.bits.Has(k) {
			continue
		}
		to := grant
		switch r.effect {
		case Deny:
			to = deny
		case Only:
			to, restricted = only, true
		}
		if r.group >= 0 {
			to[r.group/64] |= 1 << (r.group % 64)
		}
	}
	if restricted {
		return deny, only
	}
	if c.layers[layer].Default[k] {
		grant[0] |= 1
	}
	return deny, grant
}

// half is the enforcing or the auditing layers' part of a right.
type half struct {
	deny   Mask
	grants []Mask
}

func (h *half) add(deny, grant Mask, words int) {
	if h.deny == nil {
		h.deny = make(Mask, words)
	}
	for w := range deny {
		h.deny[w] |= deny[w]
	}
	h.grants = append(h.grants, grant)
}

// normal brings a half into normal form. What `denied` denies already is left
// out. A group that is denied can grant nothing; a grant that follows from a
// narrower one says nothing.
func (h *half) normal(denied Mask, words int) (Mask, []Mask) {
	nobody := make(Mask, words)
	nobody[0] = 1
	deny := make(Mask, words)
	any := false
	for w := range h.deny {
		deny[w] = h.deny[w]
		if denied != nil {
			deny[w] &^= denied[w]
		}
		any = any || deny[w] != 0
	}
	if isNobody(deny) {
		return nobody, nil
	}
	var grants []Mask
	for _, g := range h.grants {
		if g[0]&1 != 0 {
			continue
		}
		useful := make(Mask, words)
		empty := true
		for w := range g {
			useful[w] = g[w] &^ deny[w]
			if denied != nil {
				useful[w] &^= denied[w]
			}
			empty = empty && useful[w] == 0
		}
		if empty {
			return nobody, nil
		}
		grants = append(grants, useful)
	}
	slices.SortFunc(grants, func(a, b Mask) int { return slices.Compare(a, b) })
	grants = slices.CompactFunc(grants, func(a, b Mask) bool { return slices.Equal(a, b) })
	grants = slices.DeleteFunc(slices.Clone(grants), func(g Mask) bool {
		for _, other := range grants {
			if !slices.Equal(other, g) && subsetMask(other, g) {
				return true
			}
		}
		return false
	})
	if len(grants) == 0 {
		grants = nil
	}
	if !any {
		deny = nil
	}
	return deny, grants
}

func isNobody(deny Mask) bool { return len(deny) > 0 && deny[0]&1 != 0 }

func maskKey(b []byte, m Mask) []byte {
	b = append(b, byte(len(m)))
	for _, w := range m {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func rowKey(r *Row) []byte {
	var b []byte
	for k := range r {
		b = maskKey(b, r[k].Deny)
		b = append(b, byte(len(r[k].Grant)))
		for _, g := range r[k].Grant {
			b = maskKey(b, g)
		}
		b = maskKey(b, r[k].AuditDeny)
		b = append(b, byte(len(r[k].AuditGrant)))
		for _, g := range r[k].AuditGrant {
			b = maskKey(b, g)
		}
	}
	return b
}
