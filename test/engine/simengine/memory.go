package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// exhaust takes host memory and touches every page of it, for the kernel to end
// the process. It returns only where nobody did.
func exhaust(bytes int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("take %d bytes: %w", bytes, err)
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return fmt.Errorf("took %d bytes, and the kernel did not end the process: limit the memory of its control group", bytes)
}

// fault reads a page of a mapped file that was cut. With the default action for
// SIGBUS it does not return.
func fault() error {
	f, err := os.CreateTemp("/dev/shm", "simengine-")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	size := os.Getpagesize()
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	return fmt.Errorf("read %d beyond the end of %s, and no signal came", b[0], f.Name())
}
