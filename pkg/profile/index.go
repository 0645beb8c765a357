package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// index finds the rules that a message can match, in one pass over it and
// before any regular expression: at the message's beginning by a trie, anywhere
// by an Aho-Corasick automaton. The cost depends on the message's length, not on
// how many rules there are.
type index struct {
	begin, within *automaton
	// always are rules without a text to look for.
	always []int
}

// automaton is a trie over bytes as a dense table. As an Aho-Corasick automaton
// its rows are filled in by the failure links, as a plain trie they are not.
type automaton struct {
	// classes numbers the bytes that texts hold; 0 is all others.
	classes [256]uint8
	width   uint32
	// next holds where a state's row begins, shifted by one; the lowest bit tells
	// that texts end in that state.
	next []uint32
	// out are the rules whose text ends in a state.
	out [][]int
}

// maxText is how much of a text is looked for, in bytes: it keeps the tables
// small.
const maxText = 8

// maxStates bounds the tables: a megabyte or two of them.
const maxStates = 1 << 15

// errTooManyTexts says that the tables would get too large.
var errTooManyTexts = fmt.Errorf("the rules hold too many different texts (more than %d characters of them); use fewer rules or alternatives", maxStates)

func newIndex(rules []*Rule) (*index, error) {
	begin, within := map[string][]int{}, map[string][]int{}
	x := new(index)
	for _, r := range rules {
		if len(r.literals.set) == 0 {
			x.always = append(x.always, r.index)
		}
		to := within
		if r.literals.anchored {
			to = begin
		}
		for _, text := range r.literals.set {
			// The beginning of a text is nearly as rare as the whole.
			text = text[:min(len(text), maxText)]
			to[text] = append(to[text], r.index)
		}
	}
	var err1, err2 error
	x.begin, err1 = newAutomaton(begin, false)
	x.within, err2 = newAutomaton(within, true)
	return x, errors.Join(err1, err2)
}

// newAutomaton returns nil for no texts. Where search is false it only matches
// at the beginning.
func newAutomaton(texts map[string][]int, search bool) (*automaton, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	a := &automaton{width: 1}
	for text := range texts {
		for i := range len(text) {
			if a.classes[text[i]] == 0 {
				a.classes[text[i]] = uint8(a.width)
				a.width++
			}
		}
	}
	n := states(texts)
	if n > maxStates {
		return nil, errTooManyTexts
	}
	a.next, a.out = make([]uint32, 0, n*int(a.width)), make([][]int, 0, n)
	a.grow()
	for text, rules := range texts {
		state := uint32(0)
		for i := range len(text) {
			cell := a.cell(state, uint32(a.classes[text[i]]))
			if *cell == 0 {
				*cell = uint32(len(a.out))
				a.grow()
				cell = a.cell(state, uint32(a.classes[text[i]]))
			}
			state = *cell
		}
		a.out[state] = append(a.out[state], rules...)
	}
	if search {
		a.link()
	}
	a.pack()
	return a, nil
}

// states returns how many states the trie of the texts has.
func states(texts map[string][]int) int {
	n, before := 1, ""
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		same := 0
		for same < min(len(text), len(before)) && text[same] == before[same] {
			same++
		}
		n += len(text) - same
		before = text
	}
	return n
}

// cell is a state's successor; while the table is built it is a state's number.
func (a *automaton) cell(state, class uint32) *uint32 { return &a.next[state*a.width+class] }

func (a *automaton) grow() {
	a.next = a.next[:len(a.next)+int(a.width)]
	a.out = append(a.out, nil)
}

// link turns the trie into an Aho-Corasick automaton, breadth first.
func (a *automaton) link() {
	fail := make([]uint32, len(a.out))
	queue := make([]uint32, 0, len(a.out))
	for class := range a.width {
		if s := *a.cell(0, class); s != 0 {
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		state := queue[i]
		a.out[state] = append(a.out[state], a.out[fail[state]]...)
		for class := range a.width {
			cell, back := a.cell(state, class), *a.cell(fail[state], class)
			if *cell == 0 {
				*cell = back
				continue
			}
			fail[*cell] = back
			queue = append(queue, *cell)
		}
	}
}

// pack turns states' numbers into places in the table.
func (a *automaton) pack() {
	for i, state := range a.next {
		a.next[i] = state * a.width << 1
		if len(a.out[state]) > 0 {
			a.next[i] |= 1
		}
	}
}

// mark sets the bits of the rules that s can match.
func (x *index) mark(s string, bits []uint64) (any bool) {
	for _, r := range x.always {
		bits[r>>6] |= 1 << (r & 63)
		any = true
	}
	if x.begin != nil && x.begin.markPrefix(s, bits) {
		any = true
	}
	if x.within != nil && x.within.markWithin(s, bits) {
		any = true
	}
	return any
}

func (a *automaton) markPrefix(s string, bits []uint64) (any bool) {
	state := uint32(0)
	for i := range len(s) {
		state = a.next[state>>1+uint32(a.classes[s[i]])]
		if state == 0 {
			return any
		}
		if state&1 != 0 {
			any = true
			a.markState(state, bits)
		}
	}
	return any
}

func (a *automaton) markWithin(s string, bits []uint64) (any bool) {
	state, next := uint32(0), a.next
	for i := range len(s) {
		state = next[state>>1+uint32(a.classes[s[i]])]
		if state&1 != 0 {
			any = true
			a.markState(state, bits)
		}
	}
	return any
}

func (a *automaton) markState(state uint32, bits []uint64) {
	for _, r := range a.out[(state>>1)/a.width] {
		bits[r>>6] |= 1 << (r & 63)
	}
}
