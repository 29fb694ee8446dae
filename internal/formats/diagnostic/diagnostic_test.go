package diagnostic_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

var (
	errKind  = errors.New("parcel: invalid label")
	errOther = errors.New("parcel: too heavy")
)

// Text leaves out kinds wherever they are in the tree, and Error does not.
func TestText(t *testing.T) {
	heavy := diagnostic.Errorf(errOther, "it weighs %d kg", 50)
	at := diagnostic.At(errKind, "label.txt", []byte("to\nthe moon"), 7, errors.New("found moon"))
	all := errors.Join(fmt.Errorf("parcel 7: %w", heavy), at, heavy)
	require.EqualError(t, all, "parcel 7: parcel: too heavy: it weighs 50 kg\nparcel: invalid label: label.txt:2:5: found moon\nparcel: too heavy: it weighs 50 kg")
	require.Equal(t, "parcel 7: it weighs 50 kg\nlabel.txt:2:5: found moon\nit weighs 50 kg", diagnostic.Text(all, nil))
	require.Equal(t, "parcel 7: heavy: it weighs 50 kg\nlabel.txt:2:5: found moon\nheavy: it weighs 50 kg", diagnostic.Text(all, func(kind error) string {
		return map[error]string{errOther: "heavy"}[kind]
	}))
	require.ErrorIs(t, all, errKind)
	require.ErrorIs(t, all, errOther)
	require.NotErrorIs(t, heavy, errKind)
	nested := diagnostic.Errorf(errKind, "the second: %w", heavy)
	require.ErrorIs(t, nested, errOther)
	require.Equal(t, "the second: it weighs 50 kg", diagnostic.Text(nested, nil))
	require.EqualError(t, diagnostic.At(errKind, "", []byte("x"), 1, errors.New("more")), "parcel: invalid label: line 1:2: more")
}
