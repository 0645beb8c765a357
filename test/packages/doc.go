// Package packages proves the .deb and .rpm packages: what is in them, and that
// a real dpkg, a real rpm and a real systemd install, upgrade and remove them as
// an administrator expects.
//
// Its tests have the build tag e2e, need root, and run by `make e2e`. They boot
// this machine's own root file system in a container (test/nspawn); nothing of
// the machine is changed.
package packages
