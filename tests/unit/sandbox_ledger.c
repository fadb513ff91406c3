/* src/sandbox/ledger.c: what is promised never exceeds what there is, whoever asks at the same time
   and whoever dies in between. */
#include "sandbox/ledger.h"

#include "base/fd.h"
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static bool named_dead(const char *dir)
{
    return strstr(dir, "dead") == NULL;
}

static struct ledger ledger_of(uint64_t capacity_mib)
{
    return (struct ledger){.folder = folder, .capacity_mib = capacity_mib, .lives = named_dead};
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pm-test-ledger-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return tree_remove(folder);
}

static void what_does_not_fit_is_refused_and_says_why(void **state)
{
    (void)state;
    const struct ledger l = ledger_of(1000);
    assert_int_equal(ledger_reserve(&l, "sess_a", 600), 0);
    assert_int_equal(ledger_check(&l, 400), 0);
    assert_int_equal(ledger_check(&l, 401), E_QUOTA);
    assert_int_equal(ledger_reserve(&l, "sess_b", 401), E_QUOTA);
    assert_string_equal(err_code(), LEDGER_NO_ROOM);
    assert_non_null(strstr(err_text(), "600 of 1000 MiB"));
    assert_non_null(strstr(err_text(), "needs 401"));
    assert_int_equal(ledger_reserve(&l, "sess_b", 400), 0);
    assert_int_equal(ledger_check(&l, 1), E_QUOTA);
}

static void what_is_released_can_be_had_again(void **state)
{
    (void)state;
    const struct ledger l = ledger_of(1000);
    assert_int_equal(ledger_release(&l, "sess_a"), 0); /* never had any */
    assert_int_equal(ledger_reserve(&l, "sess_a", 1000), 0);
    assert_int_equal(ledger_release(&l, "sess_a"), 0);
    assert_int_equal(ledger_release(&l, "sess_a"), 0);
    char path[96];
    snprintf(path, sizeof path, "%s/.memory", folder);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(ledger_reserve(&l, "sess_b", 1000), 0);
}

static void the_same_sandbox_counts_once(void **state)
{
    (void)state;
    const struct ledger l = ledger_of(1000);
    assert_int_equal(ledger_reserve(&l, "sess_a", 900), 0);
    assert_int_equal(ledger_reserve(&l, "sess_a", 1000), 0);
    assert_int_equal(ledger_reserve(&l, "sess_a", 1001), E_QUOTA);
    assert_int_equal(ledger_reserve(&l, "sess_ab", 1), E_QUOTA);
    assert_int_equal(ledger_reserve(&l, "sess_a", 10), 0);
    assert_int_equal(ledger_check(&l, 990), 0);
    assert_int_equal(ledger_check(&l, 991), E_QUOTA);
}

static void the_dead_give_way_when_memory_is_short(void **state)
{
    (void)state;
    const struct ledger l = ledger_of(1000);
    assert_int_equal(ledger_reserve(&l, "sess_dead", 900), 0);
    assert_int_equal(ledger_reserve(&l, "sess_a", 100), 0);
    assert_int_equal(ledger_check(&l, 900), 0);
    assert_int_equal(ledger_reserve(&l, "sess_b", 901), E_QUOTA);
    assert_int_equal(ledger_reserve(&l, "sess_b", 900), 0);
    assert_int_equal(ledger_check(&l, 1), E_QUOTA);
}

static void without_a_capacity_nothing_is_counted(void **state)
{
    (void)state;
    const struct ledger l = ledger_of(0);
    assert_int_equal(ledger_check(&l, UINT32_MAX), 0);
    assert_int_equal(ledger_reserve(&l, "sess_a", UINT32_MAX), 0);
    assert_int_equal(ledger_release(&l, "sess_a"), 0);
    char path[96];
    snprintf(path, sizeof path, "%s/.memory", folder);
    assert_int_equal(access(path, F_OK), -1);
}

static void damaged_lines_are_dropped(void **state)
{
    (void)state;
    char path[96];
    const struct ledger l = ledger_of(1000);
    snprintf(path, sizeof path, "%s/.memory", folder);
    assert_int_equal(
        fd_write_file_atomic(path,
                             STR("sess_a 600\nsess_b\n 5\nsess_c x\n\0\nsess_d -1\n"
                                 "sess_e 99999999999999999999\nsess_h 4294967296\nsess_f 100"),
                             0600),
        0);
    assert_int_equal(ledger_check(&l, 301), E_QUOTA);
    assert_int_equal(ledger_reserve(&l, "sess_g", 300), 0);
    assert_int_equal(ledger_check(&l, 1), E_QUOTA);
}

/* Each of 20 processes wants a tenth; exactly 10 get it. */
static void as_many_as_fit_are_admitted_at_once(void **state)
{
    (void)state;
    enum {
        ASKING = 20,
        FITTING = 10
    };
    int gate[2], admitted = 0;
    char c;
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < ASKING; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid > 0)
            continue;
        char id[32];
        const struct ledger l = ledger_of(1000);
        snprintf(id, sizeof id, "sess_%d", i);
        close(gate[1]);
        _exit(read(gate[0], &c, 1) < 0 ? 2 : ledger_reserve(&l, id, 1000 / FITTING) != 0);
    }
    close(gate[0]);
    close(gate[1]); /* now all at once */
    for (int i = 0; i < ASKING; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        admitted += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(admitted, FITTING);
}

static void the_default_is_less_than_the_machine_has(void **state)
{
    (void)state;
    uint64_t all_mib = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
    assert_in_range(ledger_default_capacity(), 1, all_mib - all_mib / 8 + 1);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_does_not_fit_is_refused_and_says_why),
        IN_FOLDER(what_is_released_can_be_had_again),
        IN_FOLDER(the_same_sandbox_counts_once),
        IN_FOLDER(the_dead_give_way_when_memory_is_short),
        IN_FOLDER(without_a_capacity_nothing_is_counted),
        IN_FOLDER(damaged_lines_are_dropped),
        IN_FOLDER(as_many_as_fit_are_admitted_at_once),
        cmocka_unit_test(the_default_is_less_than_the_machine_has),
    };
    return cmocka_run_group_tests_name("sandbox_ledger", tests, NULL, NULL);
}
