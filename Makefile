# mur: build, test and install. `make` prints what there is.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO       ?= go
PREFIX   ?= $(HOME)/.local
FUZZTIME ?= 20s
KILLS    ?= 10000

BUNDLED  := internal/bundled/files
CAPSULES := shell hello
PROGRAMS := bin/mur bin/mur-guardian bin/mur-owner
UNITS    := $(wildcard dist/systemd/user/*.service)
GOBUILD  := $(GO) build -trimpath -ldflags='-s -w'

# Whatever a guest is built from. Tests need not rebuild it.
GUEST_SOURCES := $(shell find capsules sdk -name '*.go' ! -name '*_test.go') go.mod go.sum
BUNDLE := $(foreach c,$(CAPSULES),$(BUNDLED)/$(c)/capsule.wasm $(BUNDLED)/$(c)/murmur.yaml)

.PHONY: build test race fuzz crash long bench lint check demo install help FORCE

build: $(PROGRAMS) ## build bin/mur, bin/mur-guardian, bin/mur-owner and the capsules inside mur

test: build ## build, then run every test
	$(GO) test -timeout 8m ./...

race: build ## run every test with the race detector
	$(GO) test -race -timeout 20m ./...

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@GO='$(GO)' scripts/fuzz.sh '$(FUZZTIME)'

crash: build ## kill, fail and cut the power at every call, then KILLS (10000) random kills
	MUR_CRASH_FULL=1 MUR_CRASH_KILLS='$(KILLS)' $(GO) test -count=1 -timeout 90m -v ./tests/crash/...

long: build ## the long form of every test that repeats something
	MUR_LONG=1 $(GO) test -count=1 -timeout 90m -v ./internal/guardian ./tests/script

bench: build ## run the benchmarks
	@pkgs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	if [ -n "$$pkgs" ]; then $(GO) test -run '^$$' -bench . -benchmem $$pkgs; else echo 'there are no benchmarks yet'; fi

lint: build ## gofumpt, go vet, staticcheck
	@files=$$($(GO) tool gofumpt -l .); if [ -n "$$files" ]; then echo "not formatted (go tool gofumpt -w .):"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	GOOS=wasip1 GOARCH=wasm $(GO) vet ./capsules/... ./sdk/...
	$(GO) tool staticcheck ./...

check: lint ## lint, generated documents, go.mod; ends with "tree is clean"
	$(GO) mod tidy -diff
	$(GO) test -count=1 -run '^TestDocs' ./...
	@left=$$(git status --porcelain); if [ -n "$$left" ]; then echo "the tree is not clean:"; echo "$$left"; exit 1; fi
	@echo 'tree is clean'

demo: build ## show a session: in a terminal start the sandboxed shell, else run a scripted round
	@scripts/demo.sh

install: build ## install into PREFIX (~/.local): programs in bin, units in share/systemd/user
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/systemd/user'
	install -m 755 $(PROGRAMS) '$(DESTDIR)$(PREFIX)/bin'
	install -m 644 $(UNITS) '$(DESTDIR)$(PREFIX)/share/systemd/user'
	cd '$(DESTDIR)$(PREFIX)/share/systemd/user' && sed -i 's|%h/.local/bin/|$(PREFIX)/bin/|g' $(notdir $(UNITS))

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The capsules go into mur, so they come first. The shell needs a few changes
# in its interpreter, which mkwasm makes in a copy.
$(BUNDLED)/shell/capsule.wasm: $(GUEST_SOURCES)
	@mkdir -p $(@D)
	$(GO) run ./capsules/shell/mkwasm -o $@

$(BUNDLED)/%/capsule.wasm: $(GUEST_SOURCES)
	@mkdir -p $(@D)
	GOOS=wasip1 GOARCH=wasm $(GOBUILD) -o $@ ./capsules/$*

$(BUNDLED)/%/murmur.yaml: capsules/%/murmur.yaml
	@mkdir -p $(@D)
	cp $< $@

# The go command knows best whether a program is up to date.
bin/mur: $(BUNDLE) FORCE
	CGO_ENABLED=0 $(GOBUILD) -o $@ ./cmd/mur
bin/mur-%: FORCE
	CGO_ENABLED=0 $(GOBUILD) -o $@ ./cmd/$*
FORCE:
