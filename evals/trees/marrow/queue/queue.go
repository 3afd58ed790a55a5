// Package queue keeps messages in memory, the oldest first.
package queue

import "net/http"

// Queue holds at most Limit messages.
type Queue struct {
	Limit    int
	messages [][]byte
}

// New returns an empty queue.
func New(limit int) *Queue { return &Queue{Limit: limit} }

// Push answers 507 if the queue is full.
func (q *Queue) Push(w http.ResponseWriter, r *http.Request) {
	if len(q.messages) >= q.Limit {
		w.WriteHeader(http.StatusInsufficientStorage)
	}
}

// Pull answers 204 if the queue is empty.
func (q *Queue) Pull(w http.ResponseWriter, r *http.Request) {
	if len(q.messages) == 0 {
		w.WriteHeader(http.StatusNoContent)
	}
}
