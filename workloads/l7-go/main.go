// l7-go: the Go server of the experiment of that name. It answers `/size/KIB` with so many KiB, by HTTP/1.1
// with and without TLS on one port of 127.0.0.1, as net/http and crypto/tls of the standard library do it.
//
// `bpfcost` brings this source with it and builds it (experiments/l7-go.toml). It fills in what stands in braces
// alone, in small letters: nothing here may.
//
// Its account is a log with a line a request: the bytes of the body, and 1 where it was an answer of status 200,
// else 0. It is written out in large pieces, so that it costs no system call a request; SIGUSR1 has what is left
// written out, and the log opened anew.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// The most that is asked for by the experiment is 256.
	mostKiB = 1024
	// Bytes of the log that are written at once.
	piece = 1 << 16
	// How long a connection may take to say which protocol it speaks.
	patience = 10 * time.Second
	// The first byte of a TLS connection: a record of the handshake.
	handshake = 0x16
)

func main() {
	port := flag.Int("port", 0, "port of 127.0.0.1; 0: any that is free")
	path := flag.String("log", "", "where requests are written down, a line each; nowhere if empty")
	pid := flag.String("pid", "", "where the number of this process is written; nowhere if empty")
	flag.Parse()

	accounts, err := openAccounts(*path)
	if err != nil {
		log.Fatal(err)
	}
	if *pid != "" {
		if err := os.WriteFile(*pid, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Handler: answers(accounts),
		// What clients break off is no news.
		ErrorLog: log.New(io.Discard, "", 0),
		// Not nil: no HTTP/2.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	plain, secure := split(listener)
	config := &tls.Config{Certificates: []tls.Certificate{*certificate}}
	go func() { log.Fatal(server.Serve(plain)) }()
	go func() { log.Fatal(server.Serve(tls.NewListener(secure, config))) }()

	address := listener.Addr()
	fmt.Printf("ready: http://%s and https://%s\n", address, address)
	select {}
}

// answers serves /size/KIB.
func answers(accounts *accounts) http.Handler {
	body := make([]byte, mostKiB*1024)
	for at := range body {
		body[at] = 'a' + byte(at%26)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kib, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/size/"))
		if err != nil || kib < 0 || kib > mostKiB {
			http.NotFound(w, r)
			accounts.add(0, false)
			return
		}
		answer := body[:kib*1024]
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Header().Set("Content-Type", "text/plain")
		w.Write(answer)
		accounts.add(len(answer), true)
	})
}

// accounts is the log of what was served.
type accounts struct {
	path  string
	mutex sync.Mutex
	file  *os.File
	lines *bufio.Writer
}

func openAccounts(path string) (*accounts, error) {
	if path == "" {
		return nil, nil
	}
	a := &accounts{path: path}
	if err := a.reopen(); err != nil {
		return nil, err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			if err := a.reopen(); err != nil {
				log.Fatal(err)
			}
		}
	}()
	return a, nil
}

func (a *accounts) add(bytes int, ok bool) {
	if a == nil {
		return
	}
	var room [32]byte
	line := strconv.AppendInt(room[:0], int64(bytes), 10)
	if ok {
		line = append(line, " 1\n"...)
	} else {
		line = append(line, " 0\n"...)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, err := a.lines.Write(line); err != nil {
		log.Fatal(err)
	}
}

// reopen writes out what is left, and closes the old file after the new one is there.
func (a *accounts) reopen() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.lines != nil {
		if err := a.lines.Flush(); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	old := a.file
	a.file, a.lines = file, bufio.NewWriterSize(file, piece)
	if old != nil {
		return old.Close()
	}
	return nil
}

// branch is a listener for one of the protocols.
type branch struct {
	net.Listener
	connections chan net.Conn
}

func (b branch) Accept() (net.Conn, error) {
	connection, ok := <-b.connections
	if !ok {
		return nil, net.ErrClosed
	}
	return connection, nil
}

// split tells connections apart by their first byte, which it leaves in the socket.
func split(listener net.Listener) (plain, secure branch) {
	plain = branch{listener, make(chan net.Conn)}
	secure = branch{listener, make(chan net.Conn)}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				switch first, err := peek(connection); {
				case err != nil:
					connection.Close()
				case first == handshake:
					secure.connections <- connection
				default:
					plain.connections <- connection
				}
			}()
		}
	}()
	return plain, secure
}

func peek(connection net.Conn) (byte, error) {
	raw, err := connection.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	connection.SetReadDeadline(time.Now().Add(patience))
	defer connection.SetReadDeadline(time.Time{})
	var first [1]byte
	var read int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		read, _, failed = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
		return failed != syscall.EAGAIN && failed != syscall.EINTR
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case read == 0:
		return 0, io.EOF
	}
	return first[0], nil
}

// selfSigned makes a certificate for 127.0.0.1 that nobody else signs.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "l7-go"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der[:]}, PrivateKey: key}, nil
}
