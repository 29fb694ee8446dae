package runner

// Recode decodes a report and encodes it again, for the fuzz test.
func Recode(b []byte) ([]byte, error) {
	var p report
	if err := p.decode(b); err != nil {
		return nil, err
	}
	return p.append(nil), nil
}

// EmptyReport is the bytes of a report of nothing.
func EmptyReport() []byte { return new(report).append(nil) }
