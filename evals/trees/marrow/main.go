package main

import (
	"flag"
	"log"
	"net/http"

	"example.org/marrow/queue"
)

func main() {
	addr := flag.String("addr", ":7421", "where to listen")
	flag.Parse()
	q := queue.New(512)
	http.HandleFunc("/push", q.Push)
	http.HandleFunc("/pull", q.Pull)
	log.Fatal(http.ListenAndServe(*addr, nil))
}
