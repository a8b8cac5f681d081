package policy

// NearMiss is a rule that did not count for a question, but nearly.
type NearMiss struct {
	Rule *Rule
	Why  string
}

// NearMisses is the rules that match a question in all but one respect: the
// program, the kind of access, or that the path is below an exact one.
func NearMisses(p *Policy, s Subject, path string, k Kind) []NearMiss {
	var out []NearMiss
	for i := range p.Rules {
		r := &p.Rules[i]
		whole := *r
		whole.Exact = false
		all := whole
		all.Access = AllAccess
		switch named := r.names(s); {
		case r.applies(path, k) && !named:
			out = append(out, NearMiss{r, "it names other executables"})
		case !r.Access.Has(k) && named && all.applies(path, k):
			out = append(out, NearMiss{r, "it is for " + r.Access.String()})
		case r.Exact && named && !r.applies(path, k) && whole.applies(path, k):
			out = append(out, NearMiss{r, "it is exact: the path is below it"})
		}
	}
	return out
}
