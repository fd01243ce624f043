pytest_plugins = ["pytester", "tests.fix_postgres", "tests.fix_proxy", "tests.fix_stack"]
