package policy

// TellingNames is for the tests that check an automaton state by state.
var TellingNames = tellingNames

// Unused is the rules that Lint finds unused; against forces the way that it
// takes with policies whose rules match together in too many ways.
func Unused(p *Policy, against bool) (unused []bool, told bool) {
	a, err := Compile([]*Policy{p})
	if err != nil {
		return nil, false
	}
	if against {
		defer func(n int) { examineTogether = n }(examineTogether)
		examineTogether = 0
	}
	uses, told := examine(p, a)
	for _, u := range uses {
		unused = append(unused, u.unused)
	}
	return unused, told
}

// UnusedOrder is the order in which rules are examined.
func UnusedOrder(p *Policy) []int { return (&examiner{p: p}).order() }
