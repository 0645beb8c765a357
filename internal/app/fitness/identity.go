package fitness

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Identity is a user with all of its groups.
type Identity struct {
	// Name is for people: the user, and how it is known.
	Name     string
	UID, GID uint32
	Groups   []uint32
	// Env is what the unit adds to the environment (NAME=value): a driver's library
	// may be found by it.
	Env []string
}

// DaemonUser finds whose rights the daemon has: those of its running process, else
// what its unit says. It returns nil where the unit is not installed, and an
// error where its user can't be told.
func DaemonUser(ctx context.Context, bus Bus, root string) (*Identity, error) {
	raw, err := bus.Properties(ctx, Service)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Service, err)
	}
	p := properties(raw)
	if p.text("LoadState") != "loaded" {
		return nil, nil
	}
	id, err := daemonUser(p, root)
	if id != nil {
		id.Env = p.texts("Environment")
	}
	return id, err
}

func daemonUser(p properties, root string) (*Identity, error) {
	pid, _ := p.number("MainPID")
	if pid == 0 {
		return unitUser(p)
	}
	b, err := os.ReadFile(fmt.Sprintf("%s/proc/%d/status", root, pid))
	if err != nil {
		return nil, err
	}
	return runningUser(string(b), p.text("User"), pid)
}

// runningUser reads the user of a process from /proc/PID/status:
//
//	Uid:	990	990	990	990
//	Gid:	990	990	990	990
//	Groups:	101 990
func runningUser(status, name string, pid uint64) (*Identity, error) {
	lines := map[string][]uint32{}
	for line := range strings.Lines(status) {
		key, rest, _ := strings.Cut(line, ":")
		if key != "Uid" && key != "Gid" && key != "Groups" {
			continue
		}
		for word := range strings.FieldsSeq(rest) {
			n, err := strconv.ParseUint(word, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("/proc/%d/status: %w", pid, err)
			}
			lines[key] = append(lines[key], uint32(n))
		}
	}
	if len(lines["Uid"]) < 2 || len(lines["Gid"]) < 2 {
		return nil, fmt.Errorf("/proc/%d/status does not tell the user", pid)
	}
	if name == "" {
		name = strconv.Itoa(int(lines["Uid"][1]))
	}
	return &Identity{
		Name: fmt.Sprintf("user %s, as the running daemon (process %d)", name, pid),
		UID:  lines["Uid"][1], GID: lines["Gid"][1], Groups: lines["Groups"],
	}, nil
}

// unitUser reads the user from the unit's properties.
func unitUser(p properties) (*Identity, error) {
	name := p.text("User")
	if name == "" && !p.flag("DynamicUser") {
		return &Identity{Name: "user root, as " + Service + " says"}, nil
	}
	u, err := user.Lookup(name)
	if p.flag("DynamicUser") && err != nil {
		return nil, fmt.Errorf("%s has a DynamicUser=, which is there only while it runs: start it first", Service)
	}
	if err != nil {
		return nil, fmt.Errorf("%s runs as user %s, who does not exist (%w): make it with systemd-sysusers", Service, name, err)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %s: %w", name, err)
	}
	for _, g := range p.texts("SupplementaryGroups") {
		group, err := user.LookupGroup(g)
		if err != nil {
			return nil, fmt.Errorf("%s asks for group %s: %w", Service, g, err)
		}
		ids = append(ids, group.Gid)
	}
	id := &Identity{Name: fmt.Sprintf("user %s, as %s says", name, Service)}
	for i, text := range append([]string{u.Uid, u.Gid}, ids...) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: ID %q: %w", name, text, err)
		}
		switch i {
		case 0:
			id.UID = uint32(n)
		case 1:
			id.GID = uint32(n)
		default:
			id.Groups = append(id.Groups, uint32(n))
		}
	}
	if g := p.text("Group"); g != "" {
		group, err := user.LookupGroup(g)
		if err != nil {
			return nil, fmt.Errorf("%s has group %s: %w", Service, g, err)
		}
		n, err := strconv.ParseUint(group.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		id.GID = uint32(n)
	}
	return id, nil
}
