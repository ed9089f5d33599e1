// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// Info returns the effective configuration.
func (e *Engine) Info() (EngineInfo, error) {
	info := C.dsv4_engine_info{struct_size: C.sizeof_dsv4_engine_info}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_info(e.c, &info, failure)
	})
	return newEngineInfo(&info), err
}

// Metrics returns counters and gauges, from any goroutine while others step.
func (e *Engine) Metrics() (EngineMetrics, error) {
	c := C.dsv4_engine_metrics{struct_size: C.sizeof_dsv4_engine_metrics}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_metrics(e.c, &c, failure)
	})
	return newEngineMetrics(&c), err
}

// Identity returns device, weight format and the checkpoint's fingerprint.
func (e *Engine) Identity() (identity EngineIdentity, err error) {
	c := C.dsv4_engine_identity{struct_size: C.sizeof_dsv4_engine_identity}
	err = e.use(func(failure **C.dsv4_error) C.dsv4_status {
		status := C.dsv4_engine_get_identity(e.c, &c, failure)
		// Its texts are the engine's.
		identity = newEngineIdentity(&c)
		return status
	})
	return identity, err
}
