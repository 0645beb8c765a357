package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	schemaName = "startupd-profile/v1"
	// catalogueSchema is a file of classes and rules for every engine.
	catalogueSchema = "startupd-catalogue/v1"
)

// document is a profile as written.
type document struct {
	Schema    string              `yaml:"schema"`
	Engine    string              `yaml:"engine"`
	Extends   string              `yaml:"extends"`
	Detect    []string            `yaml:"detect"`
	Phases    []string            `yaml:"phases"`
	Port      int                 `yaml:"port"`
	Health    *healthDoc          `yaml:"health"`
	Line      *lineDoc            `yaml:"line"`
	Processes map[string][]string `yaml:"processes"`
	Titles    []string            `yaml:"titles"`
	Quiet     duration            `yaml:"quiet"`
	Steps     map[string]stepDoc  `yaml:"steps"`
	Classes   map[string]classDoc `yaml:"classes"`
	Rules     []ruleDoc           `yaml:"rules"`
	Preflight *preflightDoc       `yaml:"preflight"`
}

type classDoc struct {
	Meaning string `yaml:"meaning"`
	Remedy  string `yaml:"remedy"`
	Retry   *bool  `yaml:"retry"`
}

type healthDoc struct {
	Path     string `yaml:"path"`
	Ready    []int  `yaml:"ready"`
	NotReady []int  `yaml:"not_ready"`
	Closed   string `yaml:"closed"`
}

type lineDoc struct {
	Outer   []string          `yaml:"outer"`
	Prefix  []string          `yaml:"prefix"`
	Headers []headerDoc       `yaml:"headers"`
	Suffix  []string          `yaml:"suffix"`
	Resync  []string          `yaml:"resync"`
	Levels  map[string]string `yaml:"levels"`
}

type headerDoc struct {
	Kind     string `yaml:"kind"`
	Shape    string `yaml:"shape"`
	Anywhere bool   `yaml:"anywhere"`
}

type stepDoc struct {
	Quiet     duration `yaml:"quiet"`
	NoStretch bool     `yaml:"no_stretch"`
}

type ruleDoc struct {
	ID           string            `yaml:"id"`
	Role         Role              `yaml:"role"`
	Kind         string            `yaml:"kind"`
	Level        string            `yaml:"level"`
	Process      string            `yaml:"process"`
	From         []string          `yaml:"from"`
	Phase        string            `yaml:"phase"`
	Step         string            `yaml:"step"`
	Class        string            `yaml:"class"`
	ClassIn      map[string]string `yaml:"class_in"`
	Fatal        bool              `yaml:"fatal"`
	Banner       bool              `yaml:"banner"`
	RevokesReady bool              `yaml:"revokes_ready"`
	Waits        bool              `yaml:"waits"`
	Skips        []string          `yaml:"skips"`
	ReadyIf      []string          `yaml:"ready_if"`
	Await        *awaitDoc         `yaml:"await"`
	Weights      string            `yaml:"weights"`
	FramePhase   string            `yaml:"frame_phase"`
	Weak         bool              `yaml:"weak"`
	Exception    []string          `yaml:"exception"`
	Frame        string            `yaml:"frame"`
	ExampleFrame string            `yaml:"example_frame"`
	CauseIf      []string          `yaml:"cause_if"`
	ElseClass    string            `yaml:"else_class"`
	Hang         string            `yaml:"hang"`
	Remedy       string            `yaml:"remedy"`
	Retry        *bool             `yaml:"retry"`
	Regex        string            `yaml:"regex"`
	Extract      []string          `yaml:"extract"`
	Unfiltered   bool              `yaml:"unfiltered"`
	Example      string            `yaml:"example"`
	Examples     []string          `yaml:"examples"`
	Captures     map[string]string `yaml:"captures"`
	Since        string            `yaml:"since"`
	Until        string            `yaml:"until"`
	Source       string            `yaml:"source"`
	Note         string            `yaml:"note"`

	line int
}

type awaitDoc struct {
	Rules []string `yaml:"rules"`
	Seen  []string `yaml:"seen"`
	Phase string   `yaml:"phase"`
	Step  string   `yaml:"step"`
}

// duration is written as Go writes it: 90s, 10m.
type duration time.Duration

// UnmarshalText reads a duration of at least a second.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < time.Second {
		return fmt.Errorf("%q is no duration of a second or more; write 90s or 10m", text)
	}
	*d = duration(v)
	return nil
}

// decode reads one YAML document and refuses fields that it does not know: a
// misspelt one would change what a rule means without a word.
func decode(data []byte) (*document, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var node yaml.Node
	if err := dec.Decode(&node); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("is empty; see the embedded files for the fields (schema: %s or %s)", schemaName, catalogueSchema)
		}
		return nil, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("has more than one YAML document; write one file for each engine")
	}
	doc := new(document)
	if err := make(fieldChecker).check(&node, reflect.TypeFor[document]()); err != nil {
		return nil, err
	}
	if err := node.Decode(doc); err != nil {
		return nil, err
	}
	doc.number(&node)
	switch doc.Schema {
	case schemaName:
	case catalogueSchema:
		return doc, doc.checkCatalogue()
	default:
		return nil, fmt.Errorf("has schema %q; this startupd reads %q and %q", doc.Schema, schemaName, catalogueSchema)
	}
	if doc.Engine == "" {
		doc.Engine = doc.Extends
	}
	if doc.Engine == "" {
		return nil, fmt.Errorf("names no engine; set engine, or extends")
	}
	if doc.Extends != "" && doc.Extends != doc.Engine {
		return nil, fmt.Errorf("extends %q but is for engine %q; leave engine out", doc.Extends, doc.Engine)
	}
	return doc, nil
}

// checkCatalogue refuses what only a profile can say.
func (doc *document) checkCatalogue() error {
	empty := document{Schema: doc.Schema, Classes: doc.Classes, Rules: doc.Rules}
	if !reflect.DeepEqual(*doc, empty) {
		return fmt.Errorf("is a catalogue and so has only classes: and rules:; move the rest into a profile (schema: %s)", schemaName)
	}
	return nil
}

// number gives every rule the line that it begins on.
func (doc *document) number(node *yaml.Node) {
	for node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != "rules" {
			continue
		}
		list := resolve(node.Content[i+1])
		for j := range min(len(list.Content), len(doc.Rules)) {
			doc.Rules[j].line = list.Content[j].Line
		}
	}
}

func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// fieldChecker compares the keys of mappings with the fields of types; it holds
// the fields of the types that it has seen.
type fieldChecker map[reflect.Type]map[string]reflect.Type

// check goes as deep as t does, whatever the document holds.
func (c fieldChecker) check(node *yaml.Node, t reflect.Type) error {
	node = resolve(node)
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = resolve(node.Content[0])
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		for _, n := range node.Content {
			if err := c.check(n, t.Elem()); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			field, ok := c.fields(t)[key.Value]
			if !ok {
				return fmt.Errorf("line %d: unknown field %q; remove it or correct its name", key.Line, key.Value)
			}
			if err := c.check(node.Content[i+1], field); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Map && node.Kind == yaml.MappingNode:
		for i := 1; i < len(node.Content); i += 2 {
			if err := c.check(node.Content[i], t.Elem()); err != nil {
				return err
			}
		}
	}
	// Anything else is of the wrong kind: the decoder says so, with its line.
	return nil
}

func (c fieldChecker) fields(t reflect.Type) map[string]reflect.Type {
	if known, ok := c[t]; ok {
		return known
	}
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
			known[tag] = t.Field(i).Type
		}
	}
	c[t] = known
	return known
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
