/* src/sandbox/state.c: what is written about a sandbox reads back; what is damaged is refused. */
#include "sandbox/state.h"

#include "base/fd.h"
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/pm-test-state-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return tree_remove(dir);
}

static const struct sandbox_spec spec = {.id = "sess_x",
                                         .tenant = "tenant_y",
                                         .image = "host",
                                         .cpu_milli = 1500,
                                         .memory_mib = UINT32_MAX,
                                         .pids = 64,
                                         .disk_mib = 0};

static void a_spec_reads_back(void **state)
{
    (void)state;
    struct sandbox_spec got;
    assert_int_equal(state_read_spec(dir, &got), E_NOT_FOUND);
    assert_int_equal(state_write_spec(dir, &spec), 0);
    assert_int_equal(state_read_spec(dir, &got), 0);
    assert_true(state_spec_equal(&got, &spec));
    got.pids++;
    assert_false(state_spec_equal(&got, &spec));
}

/* Mounts are of one start: they make no other sandbox. */
static void mounts_read_back(void **state)
{
    (void)state;
    struct sandbox_spec with = spec, got;
    with.mount_count = 2;
    with.mounts[0] = (struct sandbox_mount){
        .type = MOUNT_VOLUME, .source = "vol_01ARZ3NDEKTSV4RRFFQ69G5FAV", .target = "/srv/a"};
    with.mounts[1] = (struct sandbox_mount){
        .type = MOUNT_BIND, .read_only = true, .source = "/srv", .target = "/srv/b"};
    assert_int_equal(state_write_spec(dir, &with), 0);
    assert_int_equal(state_read_spec(dir, &got), 0);
    assert_true(state_mounts_equal(&got, &with));
    assert_true(state_spec_equal(&got, &spec));
    assert_false(state_mounts_equal(&got, &spec));
    got.mounts[1].read_only = false;
    assert_false(state_mounts_equal(&got, &with));
    assert_int_equal(
        state_parse_spec(STR("{\"id\":\"\",\"tenant\":\"\",\"image\":\"\",\"cpuMilli\":0,"
                             "\"memoryMib\":0,\"pids\":0,\"diskMib\":0,\"mounts\":"
                             "[{\"source\":\"../x\",\"target\":\"/srv/a\"}]}"),
                         &got),
        E_INVALID);
}

static void a_run_reads_back(void **state)
{
    (void)state;
    struct state_run run = {.init = {.pid = 4242, .start_ticks = UINT64_C(1) << 60},
                            .started_at_ms = 1796000000123,
                            .limits_reason = "none \"here\"",
                            .cgroup_count = 2};
    snprintf(run.init.boot_id, sizeof run.init.boot_id, "b5d1");
    snprintf(run.cgroups[0], sizeof run.cgroups[0], "/sys/fs/cgroup/pi-managed/a");
    snprintf(run.cgroups[1], sizeof run.cgroups[1], "/sys/fs/cgroup/memory/pi-managed/a");
    struct state_run got;
    assert_int_equal(state_read_run(dir, &got), E_NOT_FOUND);
    assert_int_equal(state_write_run(dir, &run), 0);
    assert_int_equal(state_read_run(dir, &got), 0);
    assert_memory_equal(&got, &run, sizeof run);
    assert_int_equal(state_remove_run(dir), 0);
    assert_int_equal(state_remove_run(dir), 0);
    assert_int_equal(state_read_run(dir, &got), E_NOT_FOUND);
}

static void a_file_cut_by_a_power_failure_is_not_believed(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/spec.json", dir);
    assert_int_equal(fd_write_file_atomic(path, STR(""), 0600), 0);
    struct sandbox_spec got;
    assert_int_equal(state_read_spec(dir, &got), E_NOT_FOUND);
    assert_non_null(strstr(err_text(), "damaged"));
    snprintf(path, sizeof path, "%s/run.json", dir);
    assert_int_equal(fd_write_file_atomic(path, STR("{\"pid\":12"), 0600), 0);
    struct state_run run;
    assert_int_equal(state_read_run(dir, &run), E_IO);
}

/* A pid of 1, 0 or below would let stop kill the machine's init, or everybody. */
static void dangerous_or_foreign_values_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]",
        "{}",
        "{\"pid\":1,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[]}",
        "{\"pid\":0,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[]}",
        "{\"pid\":-1,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[]}",
        "{\"pid\":\"5\",\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[]}",
        "{\"pid\":99999999999,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":"
        "\"\",\"cgroups\":[]}",
        "{\"pid\":5,\"startTicks\":1,\"bootId\":\"b\\u0000c\",\"startedAtMs\":1,\"limitsReason\":"
        "\"\",\"cgroups\":[]}",
        "{\"pid\":5,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[7]}",
        "{\"pid\":5,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[\"x\"]}",
        "{\"pid\":5,\"startTicks\":1,\"bootId\":\"b\",\"startedAtMs\":1,\"limitsReason\":\"\","
        "\"cgroups\":[\"/1\",\"/2\",\"/3\",\"/4\",\"/5\",\"/6\",\"/7\"]}",
    };
    struct state_run run;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(state_parse_run(str_of(texts[i]), &run), E_INVALID);
    struct sandbox_spec got;
    assert_int_equal(state_parse_spec(STR("{\"id\":1}"), &got), E_INVALID);
}

static void one_verb_at_a_time(void **state)
{
    (void)state;
    AUTO_FD lock = -1;
    assert_int_equal(state_lock("/nonexistent", &lock), E_NOT_FOUND);
    assert_int_equal(state_lock(dir, &lock), 0);
    AUTO_FD other = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    fd_close(&lock);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
}

static void trees_go_whatever_is_in_them_and_links_are_not_followed(void **state)
{
    (void)state;
    char path[128], kept[128];
    snprintf(kept, sizeof kept, "%s/kept", dir);
    snprintf(path, sizeof path, "%s/tree", dir);
    assert_int_equal(mkdir(kept, 0755), 0);
    assert_int_equal(tree_remove(path), 0); /* not there: fine */
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/tree/link", dir);
    assert_int_equal(symlink(kept, path), 0);
    snprintf(path, sizeof path, "%s/tree/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/tree/\xff\n", dir);
    assert_int_equal(mkdir(path, 0), 0);
    snprintf(path, sizeof path, "%s/tree", dir);
    assert_int_equal(tree_remove(path), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(kept, F_OK), 0);
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(symlink(kept, path), 0);
    assert_int_not_equal(tree_remove(path), 0); /* a link in place of the folder itself */
    assert_int_equal(access(kept, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_spec_reads_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(mounts_read_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_run_reads_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_cut_by_a_power_failure_is_not_believed, make_folder,
                                        remove_folder),
        cmocka_unit_test(dangerous_or_foreign_values_are_refused),
        cmocka_unit_test_setup_teardown(one_verb_at_a_time, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(trees_go_whatever_is_in_them_and_links_are_not_followed,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("sandbox_state", tests, NULL, NULL);
}
