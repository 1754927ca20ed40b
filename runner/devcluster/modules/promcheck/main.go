// Promcheck tells what Prometheus would find wrong: of files of alert rules, of PromQL, and of exposed metrics.
//
// It is made of what promtool is made of, without the clients of all clouds that come along with promtool.
package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"sort"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: promcheck rules FILE... | promcheck names < EXPRESSIONS | promcheck metrics < METRICS"))
	}
	var problems []string
	var err error
	switch os.Args[1] {
	case "rules":
		problems = rules(os.Args[2:])
	case "names":
		problems, err = names()
	case "metrics":
		problems, err = metrics()
	default:
		err = fmt.Errorf("%s is no command", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// rules reads files of rules as Prometheus does when it starts.
func rules(files []string) []string {
	var problems []string
	for _, file := range files {
		_, found := rulefmt.ParseFile(file, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
		for _, problem := range found {
			problems = append(problems, problem.Error())
		}
	}
	return problems
}

// names parses the expressions on standard input, a line each, and prints the names of all metrics in them.
func names() ([]string, error) {
	var problems []string
	seen := map[string]bool{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(lines.Text())
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", lines.Text(), err))
			continue
		}
		parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				for _, matcher := range selector.LabelMatchers {
					if matcher.Name == labels.MetricName {
						seen[matcher.Value] = true
					}
				}
			}
			return nil
		})
	}
	if len(problems) == 0 {
		sorted := make([]string, 0, len(seen))
		for name := range seen {
			sorted = append(sorted, name)
		}
		sort.Strings(sorted)
		for _, name := range sorted {
			fmt.Println(name)
		}
	}
	return problems, lines.Err()
}

// metrics reads exposed metrics from standard input.
func metrics() ([]string, error) {
	found, err := promlint.New(os.Stdin).Lint()
	problems := make([]string, 0, len(found))
	for _, problem := range found {
		problems = append(problems, fmt.Sprintf("%s: %s", problem.Metric, problem.Text))
	}
	return problems, err
}
