package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// daemonSet is what startupd's own command line needs of a Kubernetes object.
type daemonSet struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args         []string
					VolumeMounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
				}
				Volumes []struct{ Name string }
			}
		}
	}
}

// TestDaemonSet: startupd takes the arguments, and each mount has its volume.
func TestDaemonSet(t *testing.T) {
	f, err := os.Open("../../deploy/kubernetes/startupd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := 0
	for dec := yaml.NewDecoder(f); ; {
		var d daemonSet
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if d.Kind != "DaemonSet" {
			continue
		}
		pod := d.Spec.Template.Spec
		for _, c := range pod.Containers {
			found++
			output(t, append(c.Args, "--help")...)
			for _, m := range c.VolumeMounts {
				if !slices.ContainsFunc(pod.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
					t.Errorf("%s is mounted from %s, which is no volume", m.MountPath, m.Name)
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("%d containers", found)
	}
}

// TestContainerMounts: the document on containers and the DaemonSet mount the
// same.
func TestContainerMounts(t *testing.T) {
	doc, err := os.ReadFile("../../docs/container.md")
	if err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile("../../deploy/kubernetes/startupd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(doc)) {
		path, is := strings.CutPrefix(strings.TrimSpace(line), "--volume /")
		if !is || !strings.HasSuffix(strings.TrimSpace(line), `\`) || strings.Contains(line, "/opt/") {
			continue
		}
		n++
		path, _, _ = strings.Cut("/"+path, ":")
		if !strings.Contains(string(object), "path: "+path+"\n") || !strings.Contains(string(object), "mountPath: "+path+"\n") {
			t.Errorf("docs/container.md mounts %s, the DaemonSet does not", path)
		}
	}
	if n < 6 {
		t.Errorf("docs/container.md mounts %d things", n)
	}
}
