// Package deploy proves what operators put beside startupd (deploy/prometheus,
// deploy/alertmanager) with the programs that read it: promtool, amtool and a real
// Alertmanager on a loopback port. It has no product code, and nothing of startupd
// runs in it: the whole chain is tested in test/e2e.
package deploy
