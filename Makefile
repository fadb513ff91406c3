# make            builds build/pi-managed (setup runs by itself when something is missing)
# make demo       shows a real Pi session at work          make run   starts the service and stays
# make test       what CI runs: ends with "N passed, N failed"
# make test-full  adds ThreadSanitizer, fuzzing time, faults seeded into the tools, and the bare-machine test
# make setup all bench fmt lint clean;  SAN=address or SAN=thread selects a sanitizer build
SHELL := /bin/bash
SAN ?=
BUILD := build$(if $(SAN),/$(SAN))
CC := gcc
PKGS := libmicrohttpd libcurl jansson sqlite3 libpq libsodium openssl libarchive libseccomp libcap-ng libutf8proc libidn2 zlib

# The first build on a bare machine installs what is missing; afterwards this costs a few milliseconds.
ifneq ($(filter-out setup clean fmt,$(or $(MAKECMDGOALS),all)),)
  ifneq ($(shell tools/setup.sh --check && echo ok),ok)
    $(info Something this build needs is not installed yet: running tools/setup.sh)
    $(if $(filter ok,$(shell tools/setup.sh >&2 && echo ok)),,$(error setup failed: see above))
  endif
endif

PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PKG_LIBS = $(shell pkg-config --libs $(PKGS)) -lpthread -lm
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wimplicit-fallthrough -Wconversion -Wno-sign-conversion -Werror
HARDEN := -fstack-protector-strong -fstack-clash-protection -fPIE -fno-omit-frame-pointer $(if $(SAN),,-D_FORTIFY_SOURCE=2)
SANFLAGS := $(if $(filter address,$(SAN)),-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=undefined) $(if $(filter thread,$(SAN)),-fsanitize=thread -Wno-tsan)
VERSION := $(shell cat VERSION)
CFLAGS := -std=gnu17 -D_GNU_SOURCE -O2 -g $(WARN) $(HARDEN) $(SANFLAGS) -Isrc -DPM_VERSION='"$(VERSION)"'
LDFLAGS := $(SANFLAGS) -pie -Wl,-z,relro,-z,now

SERVICE_DIRS := base images db db/migrations objects http api parent session harness sandbox sandbox/linux broker cli
SRC := $(foreach d,$(SERVICE_DIRS),$(wildcard src/$(d)/*.c)) src/hands/frames.c
MAIN := src/cli/main.c
LIB_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(MAIN),$(SRC)))
HANDS_BASE := $(addprefix src/base/,err.c str.c mem.c arena.c buf.c clock.c fd.c json.c json_scan.c lock.c)
HANDS_SRC := $(wildcard src/hands/*.c)
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/*.c))
FUZZ := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/*.c))
FUZZ_TESTS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/*.c))
BENCH := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))

.PHONY: all setup run demo test test-full bench fmt lint unit fuzz clean
.SECONDARY:
all: $(BUILD)/pi-managed build/runtime/catalog.json

# What Pi knows of models and prices, for the service and its tests.
build/runtime/catalog.json: tools/catalog.mjs build/runtime/.complete
	@echo "  CATALOG"; build/runtime/node/bin/node tools/catalog.mjs build/runtime

$(BUILD)/pi-managed: $(BUILD)/src/cli/main.o $(BUILD)/libpm.a
	@echo "  LINK $@"; $(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(BUILD)/libpm.a: $(LIB_OBJ) $(BUILD)/src/sandbox/hands_blob.o
	@rm -f $@; ar qcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D); echo "  CC   $<"; $(CC) $(CFLAGS) $(PKG_CFLAGS) -MMD -MP -c $< -o $@

$(addprefix $(BUILD)/src/,api/meta.o broker/control.o broker/key_check.o cli/main.o): VERSION

# pi-hands: one static program, never sanitized, carried inside pi-managed.
build/hands/%.o: src/%.c
	@mkdir -p $(@D); echo "  CC   $< (hands)"; $(CC) -std=gnu17 -D_GNU_SOURCE -Os -g $(WARN) -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffunction-sections -fdata-sections -Isrc -MMD -MP -c $< -o $@
build/pi-hands: $(patsubst src/%.c,build/hands/%.o,$(HANDS_SRC) $(HANDS_BASE))
	@echo "  LINK $@"; $(CC) -static -s -Wl,--gc-sections -o $@ $^ -ljansson -lutf8proc -lm -lpthread
$(BUILD)/src/sandbox/hands_blob.o: src/sandbox/hands_blob.S build/pi-hands
	@mkdir -p $(@D); $(CC) -DHANDS_PATH='"build/pi-hands"' -c $< -o $@

# The tests of C, and equipment in C that tests/e2e uses: compiled one by one (a test's own functions need no prototypes), then linked.
$(BUILD)/tests/unit/%.o: CFLAGS += -Wno-missing-prototypes
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libpm.a
	@echo "  LINK $@"; $(CC) $(LDFLAGS) -o $@ $< $(BUILD)/libpm.a $(PKG_LIBS) -lcmocka
$(BUILD)/tests/support/%: $(BUILD)/tests/support/%.o $(BUILD)/libpm.a
	@echo "  LINK $@"; $(CC) $(LDFLAGS) -o $@ $< $(BUILD)/libpm.a $(PKG_LIBS)
$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libpm.a
	@mkdir -p $(@D); echo "  LINK $@"; $(CC) $(LDFLAGS) -o $@ $< $(BUILD)/libpm.a $(PKG_LIBS)
unit: $(UNIT)

# Runs inside a sandbox too: one static program, never sanitized.
ATTACK := $(wildcard tests/support/attack/*.c)
$(BUILD)/tests/support/attack: tests/support/attack.c $(ATTACK) tests/support/attack/attack.h
	@mkdir -p $(@D); echo "  CC   $< (static)"; $(CC) -std=gnu17 -D_GNU_SOURCE -O1 $(WARN) -static -s -o $@ $< $(ATTACK)

# What a fuzz target is made of stands in its first lines.
fuzz_sources = $(shell sed -n 's,^/\* sources: \(.*\) \*/$$,\1,p' tests/fuzz/$(1).c)
fuzz_objects = $(patsubst %.c,$(BUILD)/%.o,tests/fuzz/run/main.c $(call fuzz_sources,$(1)))

# As a test: every seed and a fixed number of inputs, no clang needed.
.SECONDEXPANSION:
$(BUILD)/tests/fuzz/run/main.o: CFLAGS += -Wno-missing-prototypes
$(FUZZ_TESTS): $(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $$(call fuzz_objects,$$*)
	@echo "  LINK $@"; $(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS)
fuzz: $(FUZZ_TESTS)

# To look for more: with libFuzzer.
build/fuzz/%: tests/fuzz/%.c $(filter-out $(MAIN),$(SRC)) $(HANDS_SRC)
	@mkdir -p $(@D); echo "  FUZZ $<"; clang -std=gnu17 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -Isrc -DPM_VERSION='"fuzz"' $(PKG_CFLAGS) -o $@ $< $(call fuzz_sources,$*) $(PKG_LIBS)

setup:
	@tools/setup.sh
run: all
	@exec build/pi-managed serve
demo: all
	@exec tools/demo.sh
test: all
	@exec tools/test.sh
test-full: all
	@exec tools/test.sh --full
bench: all $(BENCH)
	@exec tools/bench.sh
lint:
	@tools/lint.sh
fmt:
	@git ls-files '*.c' '*.h' | xargs clang-format -i
clean:
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
