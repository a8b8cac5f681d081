package policy

// Verdict is the answer to one question.
type Verdict struct {
	Allowed bool
	Audited bool   // allowed, but an audit layer denies: reported
	Reason  Reason // ReasonRule or ReasonDefault
	Layer   int    // the layer that decided: the first that denies, else the first
	Rule    *Rule  // the rule that decided, nil for the default
}

// Decide is the executable specification of the language: whether a subject may
// do one kind of access to a path under the intersection of the layers. The
// compiled automaton and the kernel must agree with it. No layers allow
// everything.
func Decide(layers []*Policy, s Subject, path string, k Kind) Verdict {
	v := Verdict{Allowed: true, Reason: ReasonDefault}
	for i, p := range layers {
		allowed, rule := p.decide(s, path, k)
		one := Verdict{Allowed: allowed || p.Audit, Audited: !allowed && p.Audit, Reason: ReasonDefault, Layer: i, Rule: rule}
		if rule != nil {
			one.Reason = ReasonRule
		}
		switch {
		case !one.Allowed:
			return one
		case i == 0 || one.Audited && !v.Audited:
			v = one
		}
	}
	return v
}

// decide is the verdict of one layer and the rule behind it. The order of the
// rules has no influence on the verdict; of several rules that would do, the
// first is named.
func (p *Policy) decide(s Subject, path string, k Kind) (allowed bool, rule *Rule) {
	var allow, only, granted *Rule
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.applies(path, k) {
			continue
		}
		named := r.names(s)
		switch {
		case r.Effect == Deny && named:
			return false, r
		case r.Effect == Only && named && granted == nil:
			granted = r
		case r.Effect == Only && only == nil:
			only = r
		case r.Effect == Allow && named && allow == nil:
			allow = r
		}
	}
	switch {
	case granted != nil:
		return true, granted
	case only != nil:
		return false, only
	case allow != nil:
		return true, allow
	}
	return p.Default[k], nil
}
