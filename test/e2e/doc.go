// Package e2e proves startupd end to end on a real systemd: real units, a real
// journal, real restarts, startupd as the hardened unprivileged service of
// deploy/, a simulated engine (test/engine) and a fake NVML (test/fakenvml).
//
// Its tests have the build tag e2e, need root, and run by `make e2e`. They boot
// this machine's own root file system in a container (test/nspawn); nothing of
// the machine is changed.
package e2e
