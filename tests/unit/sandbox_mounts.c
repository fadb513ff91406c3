/* src/sandbox/mounts.c: what a mount may say and what an operator allows; src/sandbox/linux/
   volumes.c: the folders of volumes. */
#include "sandbox/mounts.h"

#include "base/fd.h"
#include "base/tree.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/userns.h"
#include "sandbox/linux/volumes.h"
#include "sandbox/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TENANT "tenant_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define VOLUME "vol_01ARZ3NDEKTSV4RRFFQ69G5FAV"

/* ---- text ---- */

static void names_of_volumes_are_narrow(void **state)
{
    static const char *const good[] = {"a", "0", "build-cache", "a.b_c-d", "a--b"};
    static const char *const bad[] = {"",  "-a",  ".",   "..",  "_a",
                                      "A", "a/b", "a b", "a\n", "\xc3\xa9"};
    char longest[MOUNT_NAME_MAX + 1];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(mount_check_name(str_of(good[i])), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mount_check_name(str_of(bad[i])), E_INVALID);
    memset(longest, 'a', sizeof longest);
    assert_int_equal(mount_check_name((struct str){longest, MOUNT_NAME_MAX - 1}), 0);
    assert_int_equal(mount_check_name((struct str){longest, MOUNT_NAME_MAX}), E_INVALID);
    assert_int_equal(mount_check_name(STR("a\0b")), E_INVALID);
}

static void targets_hide_nothing_that_is_needed(void **state)
{
    static const char *const good[] = {"/srv",      "/data/a b", "/workspace/repo", "/root/.cache",
                                       "/mnt/data", "/opt/x",    "/usrlocal",       "/srv/..a"};
    static const char *const bad[] = {"",
                                      "/",
                                      "srv",
                                      "/srv/",
                                      "//srv",
                                      "/srv/../a",
                                      "/srv/.",
                                      "/a\n",
                                      "/a\x7f",
                                      "/a\xff",
                                      "/proc",
                                      "/proc/self",
                                      "/sys/fs",
                                      "/dev/shm/a",
                                      "/usr",
                                      "/bin/a",
                                      "/lib64",
                                      "/etc/passwd",
                                      "/tmp",
                                      "/tmp/a",
                                      "/.pi/rg",
                                      "/mnt",
                                      "/root",
                                      "/workspace",
                                      "/mnt/session",
                                      "/mnt/session/outputs",
                                      "/mnt/memory/a"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(mount_check_target(str_of(good[i])), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mount_check_target(str_of(bad[i])), E_INVALID);
    assert_int_equal(mount_check_apart(STR("/a"), STR("/ab")), 0);
    assert_int_equal(mount_check_apart(STR("/a"), STR("/a")), E_INVALID);
    assert_int_equal(mount_check_apart(STR("/a/b"), STR("/a")), E_INVALID);
    assert_int_equal(mount_check_apart(STR("/a"), STR("/a/b")), E_INVALID);
}

static void the_longest_entry_of_the_list_counts(void **state)
{
    static const char list[] = "/srv,/srv/fixed:ro,/data/x:ro,not-absolute,/trailing/,/";
    static const struct {
        const char *source, *dir; /* NULL: nothing allows it */
        bool read_only;
    } cases[] = {
        {"/srv", "/srv", false},
        {"/srv/a", "/srv", false},
        {"/srvx", NULL, false},
        {"/srv/fixed", "/srv/fixed", true},
        {"/srv/fixed/a", "/srv/fixed", true},
        {"/srv/fixedly", "/srv", false},
        {"/data/x", "/data/x", true},
        {"/data", NULL, false},
        {"/trailing/a", NULL, false},
        {"/etc", NULL, false},
    };
    struct mount_allowed got;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool found = mount_allowed_find(str_of(cases[i].source), list, &got);
        assert_int_equal(found, cases[i].dir != NULL);
        if (!found)
            continue;
        assert_true(str_is(got.dir, cases[i].dir));
        assert_int_equal(got.read_only, cases[i].read_only);
    }
    assert_false(mount_allowed_find(STR("/srv"), "", &got));
}

static json_t *list_of(const char *text)
{
    json_t *list = json_loads(text, 0, NULL);
    assert_non_null(list);
    return list;
}

static void a_bind_is_read_only_unless_it_says_otherwise(void **state)
{
    struct sandbox_mount got[MOUNTS_MAX];
    uint32_t n = 9;
    AUTO_JSON list = list_of("[{\"type\":\"bind\",\"source\":\"/a\",\"target\":\"/srv/a\"},"
                             "{\"type\":\"volume\",\"name\":\"b\",\"target\":\"/srv/b\"},"
                             "{\"type\":\"bind\",\"source\":\"/c\",\"target\":\"/srv/c\","
                             "\"readOnly\":false}]");
    (void)state;
    assert_int_equal(mounts_read(list, got, &n), 0);
    assert_int_equal(n, 3);
    assert_true(got[0].type == MOUNT_BIND && got[0].read_only);
    assert_true(got[1].type == MOUNT_VOLUME && !got[1].read_only);
    assert_string_equal(got[1].source, "b");
    assert_string_equal(got[1].target, "/srv/b");
    assert_false(got[2].read_only);
    assert_int_equal(mounts_read(NULL, got, &n), 0);
    assert_int_equal(n, 0);
}

static void nothing_else_crosses_to_the_parent(void **state)
{
    struct sandbox_mount m[2] = {
        {.type = MOUNT_VOLUME, .source = VOLUME, .target = "/srv/a"},
        {.type = MOUNT_BIND, .source = "/srv", .target = "/srv/b"},
    };
    (void)state;
    assert_int_equal(mounts_check(m, 2), 0);
    assert_int_equal(mounts_check(m, MOUNTS_MAX + 1), E_INVALID);
    snprintf(m[0].source, sizeof m[0].source, "../../keys");
    assert_int_equal(mounts_check(m, 1), E_INVALID);
    snprintf(m[0].source, sizeof m[0].source, VOLUME);
    m[0].type = 7;
    assert_int_equal(mounts_check(m, 1), E_INVALID);
    m[0].type = MOUNT_VOLUME;
    snprintf(m[1].target, sizeof m[1].target, "/srv/a/b");
    assert_int_equal(mounts_check(m, 2), E_INVALID);
    memset(m[0].target, 'a', sizeof m[0].target);
    assert_int_equal(mounts_check(m, 1), E_INVALID);
}

/* ---- folders ---- */

static char data[64], volumes[80], sandboxes[80], box[96];

static int make_data(void **state)
{
    (void)state;
    snprintf(data, sizeof data, "/tmp/pm-test-mounts-XXXXXX");
    if (!mkdtemp(data))
        return -1;
    snprintf(volumes, sizeof volumes, "%s/volumes", data);
    snprintf(sandboxes, sizeof sandboxes, "%s/sandboxes", data);
    snprintf(box, sizeof box, "%s/sess_x", sandboxes);
    return mkdir(volumes, 0700) || mkdir(sandboxes, 0711) || mkdir(box, 0711);
}

static int remove_data(void **state)
{
    (void)state;
    return tree_remove(data);
}

static struct sandbox_place place(void)
{
    return (struct sandbox_place){.dir = box, .sandboxes = sandboxes, .volumes = volumes};
}

static struct sandbox_spec spec_with(uint32_t mounts)
{
    return (struct sandbox_spec){
        .id = "sess_x",
        .tenant = TENANT,
        .image = "host",
        .mount_count = mounts,
        .mounts = {{.type = MOUNT_VOLUME, .source = VOLUME, .target = "/srv/a"}}};
}

static bool exists(const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/" TENANT "/%s", volumes, name);
    return lstat(path, &st) == 0;
}

static void a_volume_stays_while_a_sandbox_was_started_with_it(void **state)
{
    const struct sandbox_place at = place();
    struct sandbox_spec with = spec_with(1), without = spec_with(0);
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(state_write_spec(box, &without), 0);
    assert_int_equal(volumes_claim(&with, &at), 0);
    assert_true(exists(VOLUME));
    assert_int_equal(volumes_measure(TENANT, VOLUME, &at, &bytes), 0);
    assert_true(bytes > 0);
    assert_int_equal(volumes_remove(TENANT, VOLUME, &at), E_CONFLICT);
    assert_true(exists(VOLUME));
    assert_int_equal(volumes_claim(&without, &at), 0); /* started once more, without */
    assert_int_equal(volumes_remove(TENANT, VOLUME, &at), 0);
    assert_false(exists(VOLUME));
    assert_int_equal(volumes_remove(TENANT, VOLUME, &at), 0);
    assert_int_equal(volumes_remove("tenant_none", VOLUME, &at), 0);
}

static void a_removal_that_broke_off_is_finished(void **state)
{
    const struct sandbox_place at = place();
    struct sandbox_spec with = spec_with(1), without = spec_with(0);
    char path[256], aside[300];
    (void)state;
    assert_int_equal(state_write_spec(box, &without), 0);
    assert_int_equal(volumes_claim(&with, &at), 0);
    assert_int_equal(volumes_claim(&without, &at), 0);
    snprintf(path, sizeof path, "%s/" TENANT "/" VOLUME, volumes);
    snprintf(aside, sizeof aside, "%s/" TENANT "/removed-" VOLUME, volumes);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(volumes_remove(TENANT, VOLUME, &at), 0);
    assert_false(exists("removed-" VOLUME));
}

static void a_link_in_place_of_a_volume_is_not_followed(void **state)
{
    const struct sandbox_place at = place();
    struct sandbox_spec with = spec_with(1), without = spec_with(0);
    char path[256], kept[128];
    int fd = -1;
    (void)state;
    snprintf(kept, sizeof kept, "%s/kept", data);
    snprintf(path, sizeof path, "%s/" TENANT, volumes);
    assert_int_equal(mkdir(kept, 0755) || mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/" TENANT "/" VOLUME, volumes);
    assert_int_equal(symlink(kept, path), 0);
    assert_int_equal(state_write_spec(box, &without), 0);
    assert_int_equal(volumes_claim(&with, &at), E_IO);
    assert_int_equal(volumes_open(volumes, TENANT, VOLUME, &fd), E_IO);
    assert_int_equal(volumes_remove(TENANT, VOLUME, &at), 0);
    assert_int_equal(access(kept, F_OK), 0);
}

static void what_the_list_does_not_allow_is_refused_before(void **state)
{
    struct sandbox_place at = place();
    struct sandbox_mount m = {.type = MOUNT_BIND, .read_only = true, .target = "/srv/a"};
    (void)state;
    snprintf(m.source, sizeof m.source, "%s", sandboxes);
    assert_int_equal(mounts_check_here(&m, &at), E_INVALID);
    assert_string_equal(err_code(), MOUNT_NOT_ALLOWED);
    at.allow_mount = data;
    assert_int_equal(mounts_check_here(&m, &at), 0);
    char list[80];
    snprintf(list, sizeof list, "%s:ro", data);
    at.allow_mount = list;
    assert_int_equal(mounts_check_here(&m, &at), 0);
    m.read_only = false;
    assert_int_equal(mounts_check_here(&m, &at), E_INVALID);
    assert_string_equal(err_code(), MOUNT_NOT_ALLOWED);
}

static void what_holds_a_read_only_entry_is_not_mounted_writable(void **state)
{
    struct sandbox_place at = place();
    struct sandbox_mount m = {.type = MOUNT_BIND, .target = "/srv/a"};
    struct mount_allowed fixed;
    char list[200];
    (void)state;
    snprintf(list, sizeof list, "%s,%s:ro", data, box);
    at.allow_mount = list;
    assert_int_equal(chown(sandboxes, 4321, 4321) && userns_is_privileged(), 0);
    assert_int_equal(chown(volumes, 4321, 4321) && userns_is_privileged(), 0);
    snprintf(m.source, sizeof m.source, "%s", sandboxes);
    assert_int_equal(mounts_check_here(&m, &at), E_INVALID);
    assert_string_equal(err_code(), MOUNT_NOT_ALLOWED);
    assert_non_null(strstr(err_text(), box));
    m.read_only = true;
    assert_int_equal(mounts_check_here(&m, &at), 0);
    m.read_only = false;
    snprintf(m.source, sizeof m.source, "%s", volumes);
    assert_int_equal(mounts_check_here(&m, &at), 0);
    assert_false(mount_allowed_fixed_within(STR("/srv/fixedly"), "/srv,/srv/fixed:ro", &fixed));
    assert_true(mount_allowed_fixed_within(STR("/srv"), "/srv,/srv/fixed:ro", &fixed));
}

/* ramfs cannot map ids, whatever the kernel. */
static void a_file_system_that_cannot_map_ids_is_said_to_be_the_reason(void **state)
{
    const struct sandbox_place at = place();
    const struct sandbox_mount m = {.type = MOUNT_VOLUME, .source = VOLUME, .target = "/srv/a"};
    int status;
    (void)state;
    if (!userns_is_privileged())
        skip();
    assert_int_equal(mounts_check_here(&m, &at), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("none", volumes, "ramfs", 0, NULL))
            _exit(2);
        err e = mounts_check_here(&m, &at);
        _exit(e == E_INVALID && strcmp(err_code(), MOUNTS_NOT_SUPPORTED) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define WITH_DATA(name) cmocka_unit_test_setup_teardown(name, make_data, remove_data)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_volumes_are_narrow),
        cmocka_unit_test(targets_hide_nothing_that_is_needed),
        cmocka_unit_test(the_longest_entry_of_the_list_counts),
        cmocka_unit_test(a_bind_is_read_only_unless_it_says_otherwise),
        cmocka_unit_test(nothing_else_crosses_to_the_parent),
        WITH_DATA(a_volume_stays_while_a_sandbox_was_started_with_it),
        WITH_DATA(a_removal_that_broke_off_is_finished),
        WITH_DATA(a_link_in_place_of_a_volume_is_not_followed),
        WITH_DATA(what_the_list_does_not_allow_is_refused_before),
        WITH_DATA(what_holds_a_read_only_entry_is_not_mounted_writable),
        WITH_DATA(a_file_system_that_cannot_map_ids_is_said_to_be_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
