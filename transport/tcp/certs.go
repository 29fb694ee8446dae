package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// The names of the files in a certificate folder.
const (
	authorityFile   = "ca.pem"
	certificateFile = "job.pem"
	keyFile         = "job.key"
)

// everyRank is the name in the certificate that all ranks share, whatever their addresses are.
const everyRank = "weir-rank"

// WriteCerts creates a certificate that all ranks of a job share, valid for the given time. It writes
// the certificate into a new folder, with its key and the certificate of the authority that signed
// it, and discards the authority's key.
func WriteCerts(folder string, valid time.Duration) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("tcp: a folder for certificates: %w", err)
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir job"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rank := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: everyRank}, DNSNames: []string{everyRank},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = writePEM(filepath.Join(folder, keyFile), "PRIVATE KEY", encoded)
	}
	if err != nil {
		return err
	}
	for name, signed := range map[string]*x509.Certificate{authorityFile: authority, certificateFile: rank} {
		public := &key.PublicKey
		if signed == authority {
			public = &authorityKey.PublicKey
		}
		data, err := x509.CreateCertificate(rand.Reader, signed, authority, public, authorityKey)
		if err == nil {
			err = writePEM(filepath.Join(folder, name), "CERTIFICATE", data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writePEM(path, kind string, data []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600)
}

// LoadTLS reads a folder made by WriteCerts and returns a configuration for both sides of every
// connection.
func LoadTLS(folder string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, certificateFile), filepath.Join(folder, keyFile))
	if err != nil {
		return nil, fmt.Errorf("tcp: certificates: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(folder, authorityFile))
	if err != nil {
		return nil, fmt.Errorf("tcp: certificates: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("tcp: certificates: %s contains none", filepath.Join(folder, authorityFile))
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: authority, ClientCAs: authority,
		ClientAuth: tls.RequireAndVerifyClientCert, ServerName: everyRank, MinVersion: tls.VersionTLS13,
	}, nil
}
