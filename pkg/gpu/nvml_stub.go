//go:build !cgo

package gpu

type noDriver struct{}

// newSampler returns a sampler that says why it can't see.
func newSampler(string) sampler { return noDriver{} }

func (noDriver) sample() report {
	return report{State: StateNoDriver, Reason: "this startupd was built without cgo and can't load NVIDIA's library: build it with CGO_ENABLED=1"}
}

func (noDriver) close() {}
