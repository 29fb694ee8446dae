package stagetest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
)

// OnDevice returns the subject of a stage over buffers of a device. Parts and inputs are
// float32 with the number of elements that elements returns, and gradients have the size of
// their outputs; replace Make if a part is of another type. The subject closes the device.
func OnDevice(device kernels.Compute, stage stages.Stage[kernels.Buffer], elements func(Want) int) Subject[kernels.Buffer] {
	return Subject[kernels.Buffer]{
		Stage: stage, Space: device, Gradients: device, Close: device.Close,
		Make: func(want Want) (kernels.Buffer, error) {
			n := int(want.Bytes / kernels.Float32.Bytes())
			if want.Kind != GradOut {
				n = elements(want)
			}
			b, err := device.Alloc(want.Class, kernels.Float32, n)
			if err != nil {
				return b, err
			}
			x := make([]float32, n)
			for i := range x {
				x[i] = want.Float(i)
			}
			return b, device.WriteFloat32(b, x)
		},
		Read: func(b kernels.Buffer) ([]byte, error) {
			data := make([]byte, 0, int64(b.N)*b.Type.Bytes())
			switch b.Type {
			case kernels.Float32:
				x := make([]float32, b.N)
				if err := device.ReadFloat32(x, b); err != nil {
					return nil, err
				}
				for _, v := range x {
					data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
				}
			case kernels.Int32:
				x := make([]int32, b.N)
				if err := device.ReadInt32(x, b); err != nil {
					return nil, err
				}
				for _, v := range x {
					data = binary.LittleEndian.AppendUint32(data, uint32(v))
				}
			case kernels.Uint8:
				data = data[:b.N]
				if err := device.ReadUint8(data, b); err != nil {
					return nil, err
				}
			default:
				return nil, fmt.Errorf("stagetest: a buffer of %v cannot be read", b.Type)
			}
			return data, nil
		},
		Write: func(b kernels.Buffer, data []byte) error {
			x := make([]float32, len(data)/4)
			for i := range x {
				x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
			}
			return device.WriteFloat32(b, x)
		},
	}
}
