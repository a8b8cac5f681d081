package coherence

import "slices"

// shrinkRuns bounds the search: a run is a container's life. COHERENCE_SHRINK is
// another bound; 0: not shrunk.
const shrinkRuns = 300

// shrink makes a program that is answered wrong smaller, by delta debugging: it
// leaves out ever smaller pieces as long as the rest is still answered wrong. It
// returns what is answered wrong then.
func shrink(p program, wrong string) (program, string) {
	runs, most := 0, int(number("COHERENCE_SHRINK", shrinkRuns))
	for size := len(p.ops) / 2; size > 0 && runs < most; {
		smaller := false
		for from := 0; from < len(p.ops) && runs < most; {
			q := p
			q.ops = slices.Delete(slices.Clone(p.ops), from, min(from+size, len(p.ops)))
			runs++
			if _, _, at, what, err := run(q); err == nil && what != "" {
				q.ops = q.ops[:at+1]
				p, wrong, smaller = q, what, true
				continue
			}
			from += size
		}
		if !smaller || size > len(p.ops)/2 {
			size /= 2
		}
	}
	return p, wrong
}
