// Package browser tests the page in a real Chromium against a running daemon:
// what a person sees, and that nothing that the log holds can harm them. It
// owns no product code. Its tests have the build tag browser and need chromium.
package browser
