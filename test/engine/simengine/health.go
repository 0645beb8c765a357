package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// door is the server's socket: bound from the beginning, so that connections
// are refused, and listening only once it serves.
type door struct {
	fd  int
	srv *http.Server
}

// bind takes the address. "" gives a door that never opens.
func bind(listen string) (*door, error) {
	if listen == "" {
		return &door{fd: -1}, nil
	}
	addr, err := net.ResolveTCPAddr("tcp4", listen)
	if err != nil {
		return nil, fmt.Errorf("SIMENGINE_LISTEN: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	sa := &unix.SockaddrInet4{Port: addr.Port}
	copy(sa.Addr[:], addr.IP.To4())
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", listen, err)
	}
	return &door{fd: fd}, nil
}

// open begins to listen and to answer.
func (d *door) open() error {
	if d.fd < 0 {
		return nil
	}
	if err := unix.Listen(d.fd, 16); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	f := os.NewFile(uintptr(d.fd), "health")
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	d.fd = -1
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	d.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = d.srv.Serve(l) }()
	return nil
}

func (d *door) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
	}
}
