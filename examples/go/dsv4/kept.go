// SPDX-License-Identifier: Apache-2.0

package dsv4

import "sync"

// KeptConversations are conversations that may continue, by name. They give up their place when a
// request needs it, the oldest first, and are then computed again as far as the prefix cache lacks them.
// Any goroutine.
type KeptConversations struct {
	most    int
	mutex   sync.Mutex
	entries []keptEntry // the oldest first
}

type keptEntry struct {
	name         string
	cacheSalt    uint64
	conversation *Conversation
}

// NewKeptConversations keeps up to most of them.
func NewKeptConversations(most int) *KeptConversations {
	return &KeptConversations{most: most}
}

// Put keeps a conversation, in place of the one with this name. It is closed with its place.
func (k *KeptConversations) Put(name string, conversation *Conversation, cacheSalt uint64) {
	k.mutex.Lock()
	var left, dropped []keptEntry
	for _, entry := range k.entries {
		if entry.name == name {
			dropped = append(dropped, entry)
		} else {
			left = append(left, entry)
		}
	}
	left = append(left, keptEntry{name, cacheSalt, conversation})
	if over := len(left) - k.most; over > 0 {
		dropped, left = append(dropped, left[:over]...), left[over:]
	}
	k.entries = left
	k.mutex.Unlock()
	for _, entry := range dropped {
		entry.conversation.Close()
	}
}

// Take takes out the conversation of this name and salt; nil if there is none.
func (k *KeptConversations) Take(name string, cacheSalt uint64) *Conversation {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	at := k.find(name, cacheSalt)
	if at < 0 {
		return nil
	}
	return k.remove(at).conversation
}

// Fork returns a copy of the conversation of this name and salt; nil if there is none.
func (k *KeptConversations) Fork(name string, cacheSalt uint64) (*Conversation, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	at := k.find(name, cacheSalt)
	if at < 0 {
		return nil, nil
	}
	return k.entries[at].conversation.Fork()
}

// DropOldest closes the oldest one, except those with the name other if it is not "". False if there is
// none.
func (k *KeptConversations) DropOldest(other string) bool {
	k.mutex.Lock()
	at := 0
	for at < len(k.entries) && other != "" && k.entries[at].name == other {
		at++
	}
	if at == len(k.entries) {
		k.mutex.Unlock()
		return false
	}
	dropped := k.remove(at)
	k.mutex.Unlock()
	dropped.conversation.Close()
	return true
}

// Len is the number of conversations.
func (k *KeptConversations) Len() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return len(k.entries)
}

// find returns where it is, or -1. The lock is held.
func (k *KeptConversations) find(name string, cacheSalt uint64) int {
	for i, entry := range k.entries {
		if entry.name == name && entry.cacheSalt == cacheSalt {
			return i
		}
	}
	return -1
}

// remove takes out an entry. The lock is held.
func (k *KeptConversations) remove(at int) keptEntry {
	entry := k.entries[at]
	k.entries = append(append([]keptEntry(nil), k.entries[:at]...), k.entries[at+1:]...)
	return entry
}
