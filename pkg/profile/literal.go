package profile

import (
	"regexp/syntax"
	"slices"
)

// literals is a set of texts of which a match of an expression must hold at
// least one; anchored ones stand at its beginning.
type literals struct {
	set      []string
	anchored bool
}

const (
	// minLiteral is the shortest text that is worth looking for.
	minLiteral = 2
	// maxLiteral is how much of a text is looked for: more selects no better,
	// and the tables grow with it.
	maxLiteral = 16
	// maxAlternatives bounds the set, since alternatives multiply.
	maxAlternatives = 32
)

// required finds the best literals of an expression; an empty set when it
// needs none.
func required(re *syntax.Regexp) literals {
	re = re.Simplify()
	if set, ok := prefix(re); ok && shortest(set) >= minLiteral {
		return literals{set: clip(set), anchored: true}
	}
	if set := best(re); shortest(set) >= minLiteral {
		return literals{set: clip(set)}
	}
	return literals{}
}

// prefix returns the texts that an expression anchored by ^ begins with.
func prefix(re *syntax.Regexp) ([]string, bool) {
	subs := flatten(re)
	if len(subs) == 0 || subs[0].Op != syntax.OpBeginText {
		return nil, false
	}
	run := []string{""}
	for _, sub := range subs[1:] {
		set, ok := exact(sub)
		if ok && len(set)*len(run) <= maxAlternatives {
			run = cross(run, set)
			continue
		}
		// What follows may also begin with a known text.
		if sub.Op == syntax.OpPlus {
			if set, ok := exact(sub.Sub[0]); ok && len(set)*len(run) <= maxAlternatives {
				run = cross(run, set)
			}
		}
		break
	}
	return run, true
}

// flatten lists the parts of a concatenation, looking through groups.
func flatten(re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpCapture:
		return flatten(re.Sub[0])
	case syntax.OpConcat:
		var out []*syntax.Regexp
		for _, sub := range re.Sub {
			out = append(out, flatten(sub)...)
		}
		return out
	}
	return []*syntax.Regexp{re}
}

// exact returns all texts that an expression can match, if they are few.
func exact(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, false
		}
		return []string{string(re.Rune)}, true
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}, true
	case syntax.OpCharClass:
		return exactClass(re.Rune)
	case syntax.OpCapture:
		return exact(re.Sub[0])
	case syntax.OpQuest:
		set, ok := exact(re.Sub[0])
		return append(set, ""), ok
	case syntax.OpConcat:
		out := []string{""}
		for _, sub := range re.Sub {
			set, ok := exact(sub)
			if !ok || len(set)*len(out) > maxAlternatives {
				return nil, false
			}
			out = cross(out, set)
		}
		return out, true
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			set, ok := exact(sub)
			if out = append(out, set...); !ok || len(out) > maxAlternatives {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

func exactClass(ranges []rune) ([]string, bool) {
	var out []string
	for i := 0; i+1 < len(ranges); i += 2 {
		if ranges[i+1]-ranges[i] > 4 || len(out) > 4 {
			return nil, false
		}
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			out = append(out, string(r))
		}
	}
	return out, len(out) > 0
}

// best returns the most selective set of texts that any match must hold.
func best(re *syntax.Regexp) []string {
	if set, ok := exact(re); ok {
		return set
	}
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return best(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return best(re.Sub[0])
		}
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			set := best(sub)
			if out = append(out, set...); shortest(set) == 0 || len(out) > maxAlternatives {
				return nil
			}
		}
		return out
	case syntax.OpConcat:
		return bestOf(flatten(re))
	}
	return nil
}

func bestOf(subs []*syntax.Regexp) []string {
	var found []string
	run := []string{""}
	for _, sub := range subs {
		set, ok := exact(sub)
		if ok && len(set)*len(run) <= maxAlternatives {
			run = cross(run, set)
			continue
		}
		found = better(better(found, run), best(sub))
		if run = []string{""}; ok && len(set) <= maxAlternatives {
			run = set
		}
	}
	return better(found, run)
}

func better(a, b []string) []string {
	la, lb := min(shortest(a), maxLiteral), min(shortest(b), maxLiteral)
	if lb > la || lb == la && len(b) < len(a) {
		return b
	}
	return a
}

func cross(a, b []string) []string {
	out := make([]string, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+y)
		}
	}
	return out
}

// shortest is 0 for an empty set: it selects nothing.
func shortest(set []string) int {
	if len(set) == 0 {
		return 0
	}
	n := len(set[0])
	for _, s := range set {
		n = min(n, len(s))
	}
	return n
}

func clip(set []string) []string {
	out := make([]string, len(set))
	for i, s := range set {
		out[i] = s[:min(len(s), maxLiteral)]
	}
	slices.Sort(out)
	return slices.Compact(out)
}
