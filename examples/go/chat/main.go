// SPDX-License-Identifier: Apache-2.0

// usage: chat MODEL_DIR [QUESTION]
//
// Answers the question, or each line of standard input as one conversation; Ctrl-C stops an answer.
// The model's text alone goes to standard output.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"dsv4/examples/go/dsv4"
)

func answer(conversation *dsv4.Conversation) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	events := conversation.Events(ctx)
	for events.Next() {
		if event := events.Event(); event.Type == dsv4.EventText {
			if _, err := fmt.Print(event.Text); err != nil {
				return err
			}
		}
	}
	fmt.Println()
	return events.Err()
}

func chat(model string, questions []string) error {
	engine, err := dsv4.Open(context.Background(), model, nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	conversation, err := engine.NewConversation(nil)
	if err != nil {
		return err
	}
	defer conversation.Close()
	var messages []dsv4.Message
	ask := func(question string) error {
		messages = append(messages, dsv4.Message{Role: dsv4.RoleUser, Content: question})
		if _, err := conversation.Sync(messages, nil); err != nil {
			return err
		}
		// A stopped answer stays in the conversation as far as it got.
		err := answer(conversation)
		messages = append(messages, conversation.Reply())
		return err
	}
	for _, question := range questions {
		return ask(question)
	}
	lines := bufio.NewScanner(os.Stdin)
	fmt.Fprint(os.Stderr, "> ")
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) != "" {
			if err := ask(lines.Text()); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
		fmt.Fprint(os.Stderr, "> ")
	}
	fmt.Fprintln(os.Stderr)
	return lines.Err()
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: chat MODEL_DIR [QUESTION]")
		os.Exit(2)
	}
	if err := chat(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
