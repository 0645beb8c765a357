// Command dashboards makes startupd's Grafana dashboards (package board) and asks a
// Prometheus their queries. It is a tool of the project and no part of startupd.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/startupd/startupd/tools/dashboards/board"
)

//go:generate go run . json --dir ../../deploy/grafana/dashboards

func main() {
	app := kingpin.New("dashboards", "Make startupd's Grafana dashboards, and ask a Prometheus their queries.")
	write := app.Command("json", "Write the dashboards' JSON.")
	dir := write.Flag("dir", "Folder for startup.json and fleet.json.").Required().ExistingDir()
	table := app.Command("table", "Ask a Prometheus every query, and print the answers as Markdown.")
	url := table.Flag("prometheus", "Its URL.").Required().String()
	job := table.Flag("job", "Job of the one unit.").Default("startupd").String()
	instance := table.Flag("instance", "Instance of the one unit.").Required().String()
	unit := table.Flag("unit", "The one unit.").Required().String()
	into := table.Flag("into", "Document whose tables are replaced; without it they are printed.").ExistingFile()
	span := table.Flag("range", "How far back.").Default("1h").String()
	at := table.Flag("time", "When they are asked for, as RFC 3339 writes it; now without it.").String()
	var err error
	switch kingpin.MustParse(app.Parse(os.Args[1:])) {
	case write.FullCommand():
		err = writeJSON(*dir)
	case table.FullCommand():
		err = printTable(*url, *into, *at, board.Everything(*job, *instance, *unit, *span, "1m"))
	}
	app.FatalIfError(err, "")
}

func writeJSON(dir string) error {
	for _, d := range board.All() {
		b, err := d.JSON()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(d.UID, "startupd-") + ".json"
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func printTable(url, into, at string, v board.Variables) error {
	when := time.Now()
	if at != "" {
		var err error
		if when, err = time.Parse(time.RFC3339, at); err != nil {
			return fmt.Errorf("--time: %w", err)
		}
	}
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return fmt.Errorf("the URL of Prometheus: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answers, err := board.Ask(ctx, v1.NewAPI(client), when, v)
	if err != nil {
		return err
	}
	if into == "" {
		return board.WriteTable(os.Stdout, answers)
	}
	old, err := os.ReadFile(into)
	if err != nil {
		return err
	}
	document, err := board.Into(string(old), answers)
	if err != nil {
		return fmt.Errorf("%s: %w", into, err)
	}
	return os.WriteFile(into, []byte(document), 0o644)
}
