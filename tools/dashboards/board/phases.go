package board

import (
	"fmt"
	"strings"
)

// The colours are those of Okabe and Ito, which people with any kind of colour
// vision tell apart; one means the same in every panel.
const (
	grey    = "#999999"
	dark    = "#5A5A5A"
	skyBlue = "#56B4E9"
	blue    = "#0072B2"
	orange  = "#E69F00"
	pink    = "#CC79A7"
	green   = "#009E73"
	red     = "#D55E00"
)

// phases are the states of a unit in order; the number is the position.
func phases() []Value {
	return []Value{
		{0, "unknown", dark},
		{1, "stopped", grey},
		{2, "spawn", skyBlue},
		{3, "load", blue},
		{4, "compile", orange},
		{5, "cudagraph", pink},
		{6, "serving", green},
		{7, "failed", red},
	}
}

// phaseNumber gives each unit the number of its state, as a panel of one series a
// unit needs it. Exactly one of the eight series of a unit is 1.
func phaseNumber(selector string) string {
	var terms []string
	for _, p := range phases() {
		terms = append(terms, fmt.Sprintf(`%d * startupd_phase{%s,phase=%q}`, p.Number, selector, p.Text))
	}
	return "max by (instance, unit) (" + strings.Join(terms, " or ") + ")"
}

// yesNo shows a verdict.
func yesNo() []Value { return []Value{{0, "no", green}, {1, "yes", red}} }

// upDown shows a source that sees, or one that does not.
func upDown() []Value { return []Value{{0, "blind", red}, {1, "sees", green}} }

// colours are those of the values of a label; nil where they have none of their own.
func colours(label string) []Value {
	switch label {
	case "phase", "outcome":
		return phases()
	case "severity":
		return []Value{{0, "critical", red}, {1, "warning", orange}, {2, "info", blue}}
	case "verdict":
		return []Value{
			{0, "cause", red}, {1, "symptom", orange}, {2, "suspect", pink}, {3, "benign", grey},
		}
	}
	return nil
}
