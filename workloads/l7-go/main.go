// l7-go: the Go server of the experiment of that name. It answers `/size/KIB` with so many KiB, by HTTP/1.1
// with and without TLS on one port of 127.0.0.1, as net/http and crypto/tls of the standard library do it.
//
// Its account is a log with a line a request: the bytes of the body, and 1 for an answer of status 200, else 0.
// The log is written out every few milliseconds, so that it costs no system call a request.
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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// The most that is asked for by the experiment is 256.
	mostKiB = 1024
	// How long a line may wait.
	logDelay = 10 * time.Millisecond
	// How long a connection may take to say which protocol it speaks.
	patience = 10 * time.Second
	// The first byte of a TLS connection: a record of the handshake.
	handshake = 0x16
)

func main() {
	port := flag.Int("port", 0, "port of 127.0.0.1; 0: any that is free")
	path := flag.String("log", "", "where requests are written down, a line each; nowhere if empty")
	flag.Parse()

	accounts, err := openAccounts(*path)
	if err != nil {
		log.Fatal(err)
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
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
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
	mutex sync.Mutex
	lines *bufio.Writer
	dirty bool
}

func openAccounts(path string) (*accounts, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	accounts := &accounts{lines: bufio.NewWriterSize(file, 1<<16)}
	go accounts.writeOut()
	return accounts, nil
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
	a.lines.Write(line)
	a.dirty = true
	a.mutex.Unlock()
}

func (a *accounts) writeOut() {
	for range time.Tick(logDelay) {
		a.mutex.Lock()
		if a.dirty {
			a.dirty = false
			if err := a.lines.Flush(); err != nil {
				log.Fatal(err)
			}
		}
		a.mutex.Unlock()
	}
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
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
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
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
