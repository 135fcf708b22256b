from typing import Any
import time

def test_it(service: Any) -> None:
    t=time.process_time()
    n = service.grant()
    print(time.process_time()-t)
    r = service.as_("weather").release("ann", latest=1)
    print(r)
    assert 0
